"""Functions on runs that the notebooks share: trained sweeps, comparisons, curves over epochs, missing labels.

A sweep is a mapping `found`: setting -> its runs, one per seed.
"""

from spml_core import extra

with extra("notebooks"):
    from spml_core.studies.epochs import band, by_class, by_seed, class_means, every_epoch, histories
    from spml_core.studies.sweep import (
        METRICS,
        ablation_table,
        above,
        all_runs,
        best,
        class_ap,
        class_gains,
        errorbars,
        final_values,
        gains,
        half_widths,
        measured,
        over_seeds,
        pairs,
        printed_ablation,
        scored_split,
        scores,
        searched,
        sweep,
    )
