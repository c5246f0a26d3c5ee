"""Pure functions on arrays of scores and labels: what the papers' diagnostics measure."""

from spml_core import extra

with extra("notebooks"):
    from spml_core.analysis.buckets import Buckets, bucket_false_negatives, wilson
    from spml_core.analysis.calibration import Reliability, classwise_ece, reliability
    from spml_core.analysis.correlation import Cooccurrence, cooccurrence
    from spml_core.analysis.distances import (
        histogram,
        logit_density,
        wasserstein,
        wasserstein_missing,
    )
    from spml_core.analysis.groups import GROUPS, group_means
    from spml_core.analysis.identification import (
        Identification,
        highest,
        identification,
        identification_curve,
        predictive_values,
    )
    from spml_core.analysis.khat import (
        KHatFit,
        SlopeTest,
        fit_k_hat,
        fit_k_hat_to_buckets,
        k_hat_from_annotation_rate,
        k_hat_logistic,
        slope_test,
    )
    from spml_core.analysis.missing import or_undefined
    from spml_core.analysis.ranking import Ranking, critical_difference, paired_difference, rank

__all__ = [
    "GROUPS", "Buckets", "Cooccurrence", "Identification", "KHatFit", "Ranking", "Reliability", "SlopeTest",
    "bucket_false_negatives", "classwise_ece", "cooccurrence", "critical_difference", "fit_k_hat",
    "fit_k_hat_to_buckets", "group_means", "highest", "histogram", "identification", "identification_curve",
    "k_hat_from_annotation_rate", "k_hat_logistic", "logit_density", "or_undefined", "paired_difference",
    "predictive_values", "rank", "reliability", "slope_test", "wasserstein", "wasserstein_missing", "wilson",
]  # fmt: skip
