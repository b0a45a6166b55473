"""ROC curves: exact counts whatever the ranks, a band that holds the whole curve as often as it says, and pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import binom, norm

import mpi_ustat
from mpi_ustat.complete.roc import roc
from mpi_ustat.errors import UserError
from mpi_ustat.inference.roc_band import roc_band
from mpi_ustat.mpi.runtime import SerialComm

RNG = np.random.default_rng(3)
X = np.round(RNG.normal(1.0, 1.0, 300), 2)
Z = np.append(np.round(RNG.normal(size=700), 2), [np.inf, -np.inf, 0.0, -0.0, 5e-324, -1e300])


@pytest.mark.parametrize("most", [20, 10_000])
def test_counts_at_the_thresholds_are_exact(comm: Any, most: int) -> None:
    x, z = (np.array_split(each, [0, 13, 150][: comm.size - 1])[comm.rank] for each in (X, Z))

    found = roc(comm, x, z, most_thresholds=most)

    assert found.threshold[0] == np.inf
    for column, sample in (("true_positives", X), ("false_positives", Z)):
        brute = [0, *((sample >= threshold).sum() for threshold in found.threshold[1:])]
        assert_array_equal(getattr(found, column), brute)
        steps = np.diff(getattr(found, column))
        ties = max(np.unique(sample, return_counts=True)[1])
        assert max(steps) <= len(sample) / (most // 2 - 1) + 1 + ties
    assert len(found.threshold) - 1 == (len(np.unique([*X, *Z])) if most > 1000 else len(found.threshold) - 1) <= most
    serial = roc(SerialComm(), X, Z, most_thresholds=most)
    assert all(getattr(found, name).tobytes() == each.tobytes() for name, each in vars(serial).items())


def test_it_is_the_curve_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    y, score = np.repeat([1, 0], [len(X), 700]), np.concatenate([X, Z[:700]])
    fpr, tpr, thresholds = metrics.roc_curve(y, score, drop_intermediate=False)
    found = mpi_ustat.roc_curve(y, score)
    assert_array_equal(found.fpr, fpr)
    assert_array_equal(found.tpr, tpr)
    assert_array_equal(found.thresholds, thresholds)
    assert (
        found.value
        == mpi_ustat.auc(y, score).value
        == pytest.approx(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1])) / 2, abs=1e-14)
    )


def share_of_curves_inside(confidence: float, n: int = 40, m: int = 60, runs: int = 2000) -> float:
    """How often the band holds all of R(u) = Φ(1 + Φ⁻¹(u)), the curve of N(1, 1) against N(0, 1)."""
    rng, u = np.random.default_rng(11), np.linspace(0.0, 1.0, 301)[1:-1]
    truth, inside = norm.cdf(1.0 + norm.ppf(u)), 0
    for _ in range(runs):
        x, z = np.sort(rng.normal(1.0, 1.0, n)), np.sort(rng.normal(size=m))
        thresholds = np.sort(np.concatenate([x, z]))[::-1]
        tpr, fpr = (np.append(0.0, 1.0 - np.searchsorted(each, thresholds, side="left") / len(each)) for each in (x, z))
        lower, upper = roc_band(fpr, tpr, n, m, confidence)
        low, high = np.searchsorted(fpr, u, side="right") - 1, np.searchsorted(fpr, u, side="left")
        inside += bool((lower[low] <= truth).all() and (truth <= upper[high]).all())
    return inside / runs


def test_the_band_holds_the_whole_curve_as_often_as_it_says() -> None:
    # With a coverage of 0.95 or more, the first fails with the probability 10⁻⁴ at most.
    assert share_of_curves_inside(0.95) * 2000 >= binom.ppf(1e-4, 2000, 0.95)
    assert 0.2 <= share_of_curves_inside(0.2) < 0.97  # wider than it had to be, but not so wide that it can't miss


def test_the_command_line_keeps_and_draws_the_curves(here: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    np.savetxt(tmp_path / "a.csv", np.c_[X, -X], delimiter=",", header="new,old", comments="")
    np.savetxt(tmp_path / "b.csv", np.c_[Z, -Z][:700], delimiter=",", header="new,old", comments="")
    given = ["estimate", "--x", tmp_path / "a.csv", "--z", tmp_path / "b.csv", "--columns", "new,old", "--roc"]
    assert here(*given, "--output", tmp_path / "r.h5").returncode == 0

    found = mpi_ustat.load(tmp_path / "r.h5")
    known = roc(SerialComm(), -X, -Z[:700])
    assert_array_equal(found["roc/1/tpr"], known.tpr)
    display = mpi_ustat.RocDisplay.from_result(found)
    curves = [line for line in display.ax_.get_lines() if line.get_label().startswith(("new: AUC", "old: AUC"))]
    assert_array_equal(curves[1].get_xdata(), known.fpr)
    (entry,) = display.ax_.get_legend().get_patches()
    assert len({*entry.get_facecolor()[:3]}) == 1  # grey: the colour of neither curve
    frame = found.to_frame("threshold")
    assert [*frame] == ["statistic", "threshold", "fpr", "tpr", "lower", "upper"]
    for name in ("threshold", "fpr", "tpr"):
        assert_array_equal(frame[name][frame["statistic"] == "old"], getattr(known, name))
    assert here("plot", tmp_path / "r.h5").returncode == 0
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    for more, words in (
        ([], "give --output"),
        (["--rounds", "2"], "of all pairs"),
        (["--kernel", "energy"], "--kernel"),
    ):
        done = here(*given, *more, *(["--output", tmp_path / "s.h5"] if more else []))
        assert done.returncode == 2 and words in done.stderr


def test_displays_draw_into_axes_of_the_user(tmp_path: Path) -> None:
    figure_module = pytest.importorskip("matplotlib.figure")
    y, scores = np.repeat([1, 0], [300, 700]), {"new": np.append(X, Z[:700]), "old": np.append(-X, Z[:700])}
    compared = mpi_ustat.compare_auc(y, scores, confidence=0.9)
    figure = figure_module.Figure(figsize=(11, 3.4))
    axes = figure.subplots(1, 3)
    for each in axes:
        each.set_title("mine")

    shown = mpi_ustat.EstimateDisplay.from_result(compared, ax=axes[0])
    assert shown.ax_ is axes[0] and shown.figure_ is axes[0].figure
    assert [each.get_text() for each in axes[0].get_yticklabels()] == ["new", "old"]
    ends = [segment[:, 0].tolist() for each in axes[0].collections for segment in each.get_segments()]
    assert ends == [pytest.approx(each, rel=1e-14) for each in compared.interval.tolist()]
    assert "bars: 90 % interval" in axes[0].get_xlabel()

    mpi_ustat.DifferenceDisplay.from_result(compared, ax=axes[1])
    assert [each.get_text() for each in axes[1].get_yticklabels()] == ["new - old"]
    assert mpi_ustat.RocDisplay.from_predictions(y, scores["new"], ax=axes[2], name="model $1$").ax_ is axes[2]
    legend = axes[2].get_legend()
    assert legend.get_texts()[0].get_text().startswith(r"model \$1\$: AUC 0.")
    figure.tight_layout()
    figure.draw_without_rendering()
    for each in axes:  # nothing is beyond the axes, and the titles are the user's
        room = each.get_window_extent()
        inside = [
            *(text.get_window_extent() for text in each.texts),
            *([legend.get_window_extent()] * (each is axes[2])),
        ]
        assert inside and all(room.x0 <= box.x0 and box.x1 <= room.x1 and box.y1 <= room.y1 for box in inside)
        assert each.get_title() == "mine" and room.width > 0.18 * figure.bbox.width
    curve = mpi_ustat.roc_curve(y, scores["new"])
    frame = curve.to_frame("threshold")
    assert [*frame] == ["threshold", "fpr", "tpr", "lower", "upper"]
    assert_array_equal(frame["upper"], curve.upper)
    with pytest.raises(TypeError, match=r"from_predictions\(\) got an unexpected keyword argument 'pos_lable'"):
        mpi_ustat.RocDisplay.from_predictions(y, scores["new"], pos_lable=1)
    assert compared.plot()._repr_png_().startswith(b"\x89PNG")
    json.dumps(compared.to_dict(), allow_nan=False)

    for call, words in (
        (lambda: mpi_ustat.RocDisplay.from_result(compared), "has no ROC curve"),
        (lambda: mpi_ustat.DifferenceDisplay.from_result(mpi_ustat.gini(X)), "has no differences"),
        (lambda: mpi_ustat.LearningDisplay.from_result(compared), "can't be drawn so"),
        (lambda: mpi_ustat.energy_test(X, Z[:100], n_permutations=19).plot(axes[0]), "several panels"),
    ):
        with pytest.raises(UserError, match=words):
            call()
