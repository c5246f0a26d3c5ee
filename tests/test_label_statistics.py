"""The numbers in the table of data sets, against counts by hand."""

from pathlib import Path

import numpy as np
import pytest

from spml_core.analysis import label_statistics

ROOT = Path(__file__).parents[1]
TRACKED = ROOT / "data" / "draws" / "digits-single-positive-seed0.csv"

# Statistics.


def test_summary_and_classes_by_hand():
    full = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]])
    observed = np.array([[1, 0, 0], [0, 0, -1], [0, 0, 0], [1, 0, 0]])
    known = np.ones((4, 3), bool)
    known[2, 2] = False
    found = label_statistics.summary(full, observed, known)
    assert found == {
        "images": 4, "classes": 3, "positives": 4, "mean_positives": 1.0, "mean_negatives": 7 / 4,
        "without_positive": 1, "observed": 2, "mean_observed": 0.5, "false_negative_share": 2 / 8,
    }  # fmt: skip
    table = label_statistics.per_class(full, observed, known)
    assert table.positives.tolist() == [3, 1, 0]
    assert table.observed_positives.tolist() == [2, 0, 0]
    assert table.missing_positives.tolist() == [1, 1, 0]
    assert table.missing_negatives.tolist() == [1, 3, 2]
    np.testing.assert_allclose(table.missing_share, [1 / 3, 1, np.nan])
    np.testing.assert_allclose(table.positive_share, [1 / 2, 1 / 4, 0])
    np.testing.assert_allclose(label_statistics.labels_per_image(full, 1), [0.25, 0.75])
    np.testing.assert_allclose(label_statistics.labels_per_image(full, 4), [0.25, 0.5, 0.25, 0, 0])


@pytest.mark.parametrize(
    "arguments, match",
    [(([],), r"\(0,\)"), ((np.eye(2), np.eye(3)), "observed"), ((np.eye(2), None, [[1]]), "known")],
)
def test_statistics_need_matrices_that_fit(arguments, match):
    with pytest.raises(ValueError, match=match):
        label_statistics.summary(*arguments)
