"""The papers' diagnostics, as pure functions on arrays of scores and labels."""

from spml_core import extra

with extra("notebooks"):
    from spml_core.analysis.buckets import bucket_false_negatives, classwise_ece, reliability, wilson
    from spml_core.analysis.correlation import correlation_agreement, correlation_strength, label_correlation
    from spml_core.analysis.distances import histogram, logit_density, wasserstein
    from spml_core.analysis.groups import GROUPS, group_means
    from spml_core.analysis.identification import highest, identification, identification_curve
    from spml_core.analysis.khat import (
        SlopeTest,
        fit_k_hat,
        fit_k_hat_to_buckets,
        k_hat_from_annotation_rate,
        k_hat_logistic,
        slope_test,
    )
    from spml_core.analysis.missing import or_undefined
    from spml_core.analysis.ranking import critical_difference, rank
    from spml_core.analysis.selection import RULES, expected_positives, prior_thresholds
