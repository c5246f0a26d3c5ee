"""Compare methods: our numbers in the form of the papers' result tables, with the printed ones beside them.

found = sweep({m: (m, {}) for m in comparison.names()}, seeds=[0, 1, 2])
numbers = measured(found)                    # one row per method and seed: mAP, CP, CR, CF1, OP, OR, OF1
printed = comparison.published("GR Table 2")           # one row per method, one column per data set
comparison.report({"": comparison.beside(comparison.cells(numbers[["mAP"]]), printed)})
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from scipy import stats

from spml_core.figures import palette
from spml_core.figures.claims import Claim, Interval
from spml_core.methods import Method, get
from spml_core.methods import names as registered
from spml_core.methods.display import look_order
from spml_core.runs import Run
from spml_core.studies.sweep import by_setting_and_seed, over_seeds, pairs, printed_rows

PUBLISHED = "data/published_results.csv"
# Rows of "GR Table 2" whose names differ from ours: its SPLC is Focal margin + SPLC; on VOC and COCO the cells of its
# ROLE are those of ROLE + LinearInit.
RENAMED = {("gr_table2", "splc"): "fm_splc", ("gr_table2", "role_li"): "role"}
# And rows of methods that are not registered.
OTHERS = {"role_li": "ROLE + LinearInit"}
# Hill/SPLC's label settings on COCO in the file of published results, and the percent of the labels left (Table II).
HILL_LEFT = {"full": 100, "75pct_labels_left": 75, "40pct_labels_left": 40, "single_positive": 34}
SHORT = {"voc2012": "VOC", "coco2014": "COCO", "nuswide": "NUS", "cub200": "CUB"}
SHORT |= {"nuswide_asl_list": "NUS (119k list)", "openimages": "Open Images"}


def parameters(methods: Iterable[str], dataset: str) -> dict[str, dict]:
    """Return hyperparameters by method: those published for the data set where there are some, else none."""
    presets = {method: get(method).presets for method in methods}
    return {method: its.params.get(dataset, {}) if its else {} for method, its in presets.items()}


def names() -> list[str]:
    """Return the methods of the benchmark: all registered ones that are whole methods, related ones together."""
    whole = [name for name in registered() if get(name).whole]
    return sorted(whole, key=lambda name: look_order(get(name)))


def is_oracle(method: str) -> bool:
    """Return whether a method sees more than one label of an image, so that it does not compete with the others."""
    return method in registered() and get(method).observes != Method.observes


def label(method: str) -> str:
    """Return a method's name in tables, also for the methods of `OTHERS`."""
    return OTHERS.get(method, palette.label(method))


def cells(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return "96.3 ± 0.7" for each setting and column; "--" where a seed has no value.

    Args:
        numbers: from `measured` or `class_ap`.
    """
    by_seed = {name: values.unstack("seed", sort=False) for name, values in numbers.items()}
    return pd.DataFrame({name: over_seeds(values) for name, values in by_seed.items()})


def published(source: str, columns: str = "dataset", value: str = "text", **where) -> pd.DataFrame:
    """Return a paper's table: one row per method under our names, in the paper's order, and one column per data set.

    Methods that are not registered keep the paper's name (`OTHERS`); data sets have their `SHORT` names. Known
    misprints of the tables are listed in data/README.md.

    Args:
        source: "GR Table 2", "EM Table 1", "LASD Table 2", "Hill Table III", "Hill Table X" to "Hill Table XV".
        columns: "dataset", "metric" or "labels".
        value: "mean", a number; or "text", such as "89.8 ± 0.1" if a spread is printed.
        where: columns of the file and the value, or list of values, that they must have, e.g. metric="mAP".

    Raises:
        ValueError: there is no such row.
    """
    rows = printed_rows(PUBLISHED, source.lower().replace(" table ", "_table"), where)
    rows = rows.assign(method=[_ours(*row) for row in rows[["source", "loss", "labels"]].to_numpy()])
    spread = rows["std"].map(lambda sd: "" if np.isnan(sd) else f" ± {sd:.2f}")
    digits = 2 if rows["std"].notna().any() else 1
    rows["text"] = rows["mean"].map(lambda mean: f"{mean:.{digits}f}") + spread
    wide = rows.pivot(index="method", columns=columns, values=value)
    wide = wide.loc[rows["method"].unique(), rows[columns].unique()]
    return wide.rename(columns=SHORT).rename_axis(None, axis=1)


def _ours(source: str, loss: str, labels: str) -> str:
    if (loss, labels) == ("bce", "one_positive_all_negatives"):
        return "iun"
    return RENAMED.get((source, loss), loss)


def beside(ours: pd.DataFrame, printed: pd.DataFrame, also: Iterable[str] = ()) -> pd.DataFrame:
    """Return our cells and the printed ones in one table: one row per method, in the paper's order.

    Args:
        ours: from `cells`, one row per method.
        printed: from `published`; columns with the same names as ours need `add_prefix` first.
        also: further methods of ours, which the paper does not print; they follow below.
    """
    order = list(dict.fromkeys([*printed.index, *(m for m in also if m in ours.index)]))
    return ours.reindex(order).join(printed.reindex(order)).fillna("--")


def report(blocks: Mapping[str, pd.DataFrame], of: str = "labels") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stack tables of the same columns, for `save_table`.

    Args:
        blocks: name -> texts, one row per method, as from `beside` or `cells`. The name of a single block is left out.
        of: heading of the names.

    Returns:
        The table, with the methods' labels; and booleans of the same shape that mark, in each column of a block, the
        highest mean among the methods that see one positive.
    """
    tables, highest = [], []
    for name, texts in blocks.items():
        means = texts.map(lambda cell: float(cell.split()[0]) if cell != "--" else np.nan)
        rivals = means.loc[[m for m in means.index if not is_oracle(m)]]
        marks = (means == rivals.max()) & means.index.isin(rivals.index)[:, None]
        heads = {of: [name] * len(texts)} if len(blocks) > 1 else {}
        heads["method"] = [label(m) for m in texts.index]
        table = pd.concat([pd.DataFrame(heads, index=texts.index), texts], axis=1)
        tables.append(table)
        highest.append(marks.reindex(columns=table.columns, fill_value=False))
    return pd.concat(tables, ignore_index=True), pd.concat(highest, ignore_index=True)


def agreement(ours: pd.DataFrame, printed: pd.DataFrame) -> pd.DataFrame:
    """Return Spearman's correlation of our mAP with printed ones, over the methods that both have.

    Args:
        ours: one row per method, one column per seed.
        printed: numbers, one row per method, one column per data set. Oracles are left out.

    Returns:
        One row per data set of which both have 3 methods or more: methods (how many), spearman (of the means over our
        seeds), lowest and highest (of single seeds), p_value (for no relation, two-sided, by permutation, since the
        usual approximation is far too small for few methods; exact up to 7 methods, else from 9,999 permutations), and
        with_first: the correlation with the paper's own first
        column, the most that can be expected. NaN if all values of one side are equal.
    """
    rows = []
    for dataset, column in printed.items():
        both = _both(ours, column)
        theirs, mine = column[both], ours.loc[both]
        first = printed.iloc[:, 0].reindex(both)
        if len(both) < 3:
            continue
        mean = mine.mean(axis=1)
        test = stats.pearsonr(mean.rank(), theirs.rank(), method=stats.PermutationMethod(rng=0))
        p = np.nan if np.isnan(test.statistic) else test.pvalue
        single = np.array([stats.spearmanr(mine[seed], theirs).statistic for seed in mine])
        own = stats.spearmanr(first, theirs, nan_policy="omit").statistic
        rows.append((dataset, len(both), test.statistic, single.min(), single.max(), p, own))
    columns = ["dataset", "methods", "spearman", "lowest", "highest", "p_value", "with_first"]
    return pd.DataFrame(rows, columns=columns)


def _both(ours: pd.DataFrame, printed: pd.Series) -> list[str]:
    """Return the methods with one positive per image that have a number in print and, for each seed, here."""
    here = ours.dropna().index
    return [method for method in printed.dropna().index if method in here and not is_oracle(method)]


def ranks(ours: pd.DataFrame, printed: pd.Series) -> pd.DataFrame:
    """Return ranks by mAP here and in print (1 is best), among the methods that both have, oracles left out.

    Args:
        ours: one row per method, one column per seed.
        printed: one number per method.

    Returns:
        One row per method, best in print first: here (mean of the ranks of the seeds), best and worst of them, printed.
    """
    both = _both(ours, printed)
    single = ours.loc[both].rank(ascending=False)
    table = single.agg(["mean", "min", "max"], axis=1).set_axis(["here", "best", "worst"], axis=1)
    return table.assign(printed=printed[both].rank(ascending=False)).sort_values("printed")


def labels_left(found: Mapping[tuple, Iterable[Run]]) -> pd.Series:
    """Return the percent of the training images' positives that are observed, by the first part of a setting's name."""

    def share(run: Run) -> dict[str, float]:
        labels = run.labels("train")
        return {"left": 100 * (labels.observed == 1).sum() / (labels.full == 1).sum()}

    return by_setting_and_seed(found, share)["left"].groupby(level=0, sort=False).mean()


def paired_differences(table: pd.DataFrame, first: str, others: Iterable[str]) -> pd.DataFrame:
    """Return how far a method is above others, paired by seed: one row per other method, with a 95 % interval
    (Student).

    Args:
        table: from `scores`.

    Returns:
        difference (its name), mean, low, high (`Interval.of_mean`; NaN for a single seed), and one column "seed N" per
        seed.
    """
    rows = []
    for other in others:
        gaps = table.loc[first] - table.loc[other]
        mean, low, high = Interval.of_mean(gaps.tolist())
        row = {"difference": f"{label(first)} − {label(other)}", "mean": mean, "low": low, "high": high}
        rows.append(row | gaps.add_prefix("seed ").to_dict())
    return pd.DataFrame(rows).replace([-np.inf, np.inf], np.nan)


def ordered(text: str, table: pd.DataFrame, better: Iterable[tuple], source: str = "") -> list[Claim]:
    """Return a list with the claim of `sweep.pairs` for pairs whose settings are both in the table; empty if none are.

    Args:
        table: one row per setting, one column per seed.
        better: (higher, lower) names of rows.
    """
    there = [pair for pair in better if all(name in table.index for name in pair)]
    return [pairs(text, table, there, source)] if there else []
