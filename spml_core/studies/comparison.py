"""Methods side by side: the numbers of the papers' result tables, and the printed ones beside them.

found = sweep({m: (m, {}) for m in comparison.names()}, seeds=[0, 1, 2])
numbers = measured(found)                    # one row per method and seed: mAP, CP, CR, CF1, OP, OR, OF1
printed = comparison.published("GR Table 2")           # one row per method, one column per data set
comparison.report({"": comparison.beside(comparison.cells(numbers[["mAP"]]), printed)})
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import numpy as np
import pandas as pd
from scipy import stats

from spml_core.figures import palette
from spml_core.figures.claims import Claim
from spml_core.methods import Method, get
from spml_core.methods import names as registered
from spml_core.methods.display import look_order
from spml_core.runs import Run
from spml_core.studies.sweep import over_seeds, pairs, printed_rows

PUBLISHED = "data/published_results.csv"
# Rows that go by another name in a paper than with us, and rows of methods that are not registered.
RENAMED = {
    ("gr_table2", "splc"): "fm_splc",  # Focal margin + SPLC; the paper calls it SPLC
    (
        "gr_table2",
        "role_li",
    ): "role",  # the paper's ROLE; on VOC and COCO its cells are those of ROLE + LinearInit
}
OTHERS = {"role_li": "ROLE + LinearInit", "smile": "SMILE", "mime": "MIME"}
LEFT = {"full": "full", "75 %": "75pct_labels_left", "40 %": "40pct_labels_left", "single": "single_positive"}
SHORT = {"voc2012": "VOC", "coco2014": "COCO", "nuswide": "NUS", "cub200": "CUB"}
SHORT |= {"nuswide_asl_list": "NUS (119k list)", "openimages": "Open Images"}


def parameters(methods: Iterable[str], dataset: str, expected_positives: float) -> dict[str, dict]:
    """Return hyperparameters by method: those published for the data set where there are some, else the defaults.

    Args:
        expected_positives: true positives an image, for the methods that must be told (k).
    """
    chosen = {}
    for method in methods:
        its = get(method)
        published = its.presets.params.get(dataset, {}) if its.presets else {}
        required = {"expected_positives": expected_positives} if "expected_positives" in its.requires else {}
        chosen[method] = required | published
    return chosen


def names() -> list[str]:
    """Return the methods of the benchmark: all registered ones that are whole methods, related ones together."""
    whole = [name for name in registered() if get(name).whole]
    return sorted(whole, key=lambda name: look_order(get(name)))


def is_oracle(method: str) -> bool:
    """Return whether a method sees more than one label of an image, so that it is no rival of the others."""
    return method in registered() and get(method).observes != Method.observes


def label(method: str) -> str:
    """Return how tables call a method, one of another paper included."""
    return OTHERS.get(method, palette.label(method))


def cells(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return "96.3 ± 0.7" for each setting and column; "--" where a seed has no value.

    Args:
        numbers: of `measured` or `class_ap`.
    """
    return pd.DataFrame(
        {name: over_seeds(values.unstack("seed", sort=False)) for name, values in numbers.items()}
    )


def published(source: str, columns: str = "dataset", value: str = "text", **where) -> pd.DataFrame:
    """What a paper's table prints: a row a method by our names, in the paper's order, and a column a data set.

    Rows of methods that are not registered stay, under the paper's name (`OTHERS`). The known slips of the tables are
    in data/README.md.

    Args:
        source: "GR Table 2", "EM Table 1", "LASD Table 2", "Hill Table III", "Hill Table X" to "Hill Table XV".
        columns: "dataset", "metric" or "labels".
        value: "mean", a number; or "text", "89.8 ± 0.1" as far as a spread is printed.
        where: columns of the file and the value, or list of values, that they must have, e.g. metric="mAP".

    Raises:
        ValueError: nothing is printed there.
    """
    rows = printed_rows(PUBLISHED, source.lower().replace(" table ", "_table"), where)
    rows = rows.assign(method=[_ours(*row) for row in rows[["source", "loss", "labels"]].to_numpy()])
    if value == "text":
        spread = rows["std"].map(lambda sd: "" if np.isnan(sd) else f" ± {sd:.2f}")
        digits = rows["mean"].map(lambda mean: f"{mean:.2f}" if rows["std"].notna().any() else f"{mean:.1f}")
        rows["text"] = digits + spread
    wide = rows.pivot(index="method", columns=columns, values=value)
    return wide.loc[rows["method"].unique(), rows[columns].unique()].rename_axis(None, axis=1)


def _ours(source: str, loss: str, labels: str) -> str:
    if (loss, labels) == ("bce", "one_positive_all_negatives"):
        return "iun"
    return RENAMED.get((source, loss), loss)


def beside(ours: pd.DataFrame, printed: pd.DataFrame, also: Iterable[str] = ()) -> pd.DataFrame:
    """Texts of our cells and of printed ones in one table: a row a method, in the paper's order.

    Args:
        ours: of `cells`, a row a method.
        printed: of `published`; columns of the same names as ours are told apart by `add_prefix` before.
        also: methods of ours below them, which the paper does not print.
    """
    order = list(dict.fromkeys([*printed.index, *(m for m in also if m in ours.index)]))
    return ours.reindex(order).join(printed.reindex(order)).fillna("--")


def report(blocks: Mapping[str, pd.DataFrame], of: str = "labels") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables of the same columns below each other, for `save_table`: the table, and the highest cells of each.

    Args:
        blocks: name -> texts, a row a method, as of `beside` or `cells`. A single block goes without its name.
        of: heading of the names.

    Returns:
        The table with the methods by their labels; and booleans in its shape, true at the highest mean of each column
        of a block among the methods that see one positive.
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
    """Whether methods rank here as a paper prints them: Spearman's correlation over the methods both have.

    Args:
        ours: a row a method, a column a seed.
        printed: a row a method, a column a data set, numbers. Oracles are left out.

    Returns:
        A row a data set of which both have 3 methods or more: methods (how many), spearman (of the means over our
        seeds), lowest and highest (of single seeds), p_value (of no relation), and with_first: how the paper's own
        first column ranks the same methods, the most that can be asked for.
    """
    rows = []
    for dataset, column in printed.items():
        both = _both(ours, column)
        theirs, mine = column[both], ours.loc[both]
        first = printed.iloc[:, 0].reindex(both)
        if len(both) < 3:
            continue
        found = stats.spearmanr(mine.mean(axis=1), theirs)
        single = [stats.spearmanr(mine[seed], theirs).statistic for seed in mine]
        own = stats.spearmanr(first, theirs, nan_policy="omit").statistic
        rows.append((dataset, len(both), found.statistic, min(single), max(single), found.pvalue, own))
    columns = ["dataset", "methods", "spearman", "lowest", "highest", "p_value", "with_first"]
    return pd.DataFrame(rows, columns=columns)


def _both(ours: pd.DataFrame, printed: pd.Series) -> list[str]:
    """Methods with one positive an image that have a number here, for each seed, and in print."""
    here = ours.dropna().index
    return [method for method in printed.dropna().index if method in here and not is_oracle(method)]


def ranks(ours: pd.DataFrame, printed: pd.Series) -> pd.DataFrame:
    """Ranks by mAP here and in print (1 is best), among the methods that both have, oracles left out.

    Args:
        ours: a row a method, a column a seed.
        printed: a number a method.

    Returns:
        A row a method, best in print first: here (mean of the ranks of the seeds), best and worst of them, printed.
    """
    both = _both(ours, printed)
    rank = lambda values: pd.Series(stats.rankdata(-values), both)  # noqa: E731
    single = pd.DataFrame({seed: rank(ours.loc[both, seed]) for seed in ours}, index=both)
    table = pd.DataFrame(
        {"here": single.mean(axis=1), "best": single.min(axis=1), "worst": single.max(axis=1)}
    )
    return table.assign(printed=rank(printed[both])).sort_values("printed")


def labels_left(found: Mapping[tuple, Iterable[Run]]) -> pd.Series:
    """Percent of the positives of the training images that are observed, by the first part of the settings' names."""
    shares: dict[Hashable, list[float]] = {}
    for (first, *_), runs in found.items():
        for run in runs:
            labels = run.labels("train")
            share = 100 * (labels.observed == 1).sum() / (labels.full == 1).sum()
            shares.setdefault(first, []).append(float(share))
    return pd.Series({first: np.mean(values) for first, values in shares.items()})


def ordered(text: str, table: pd.DataFrame, better: Iterable[tuple], source: str = "") -> list[Claim]:
    """`sweep.pairs` of those pairs whose methods are both there, as a list: empty if there are none.

    Args:
        table: a row a setting, a column a seed.
        better: (higher, lower) names of rows.
    """
    there = [pair for pair in better if all(name in table.index for name in pair)]
    return [pairs(text, table, there, source)] if there else []
