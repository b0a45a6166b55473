"""The measurement of complete statistics and its picture: what is drawn is what the files hold."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from completemodel import RingJob, SortJob
from conftest import REPOSITORY
from costmodel import CONSTANTS, PHASES

from mpi_ustat.plots.pictures import draw
from mpi_ustat.storage.results import Dataset, ResultFile, load, save

pytest.importorskip("matplotlib")

RANKS, RING_RANKS = np.array([10, 100, 1000, 10_000]), np.array([1, 10, 100, 1000, 10_000])
TOTALS = np.array([10**9, 10**10])


def scaling() -> ResultFile:
    """Return a result whose curves differ, with stars at 7 s and 70 s but for messages of 1 s."""
    auc = np.arange(1.0, len(SortJob.phases) + 1) * (1e4 / RANKS)[:, None] * np.array([1.0, 10.0])[:, None, None]
    datasets = {
        "auc/curves": Dataset(auc),
        "round/curves": Dataset(3.0 * auc[:, :, :6]),
        "ring/curves": Dataset(np.arange(1.0, len(RingJob.phases) + 1) * (1e3 / RING_RANKS)[:, None]),
        "auc/sizes": Dataset(TOTALS[[0, 1, 0, 0]][:, None] // [2, 2]),
        "auc/n_ranks": Dataset(np.array([100, 1000, 10, 1])),
        "auc/case": Dataset(np.array(["whole", "whole", "", "whole"])),
        "auc/pretended": Dataset(np.array([True, True, True, False])),
        "auc/computing": Dataset(np.array([6.0, 69.0, 5.0, 4.0])),
        "auc/wire": Dataset(np.ones(4)),
        "ring/n_ranks": Dataset(np.array([1000])),
        "ring/case": Dataset(np.array(["whole"])),
        "ring/pretended": Dataset(np.array([True])),
        "ring/computing": Dataset(np.array([2.0])),
        "ring/wire": Dataset(np.array([0.5])),
    }
    scales = {
        "total": TOTALS, "rank": RANKS, "ring rank": RING_RANKS, "phase": np.array(PHASES),
        "auc phase": np.array(SortJob.phases), "ring phase": np.array(RingJob.phases),
    }  # fmt: skip
    config = {"n_workers": 10_000, "points": 300_000, "columns": 10}
    return ResultFile("scaling-complete", config, {}, datasets, scales)


def test_lines_are_the_model_and_stars_the_ranks_that_were_timed() -> None:
    result = scaling()
    axes = draw(result).axes
    lines = {line.get_label(): line for line in axes[0].get_lines()}
    for name, label in (("auc", "complete AUC"), ("round", "a round")):
        for total, seconds, power in zip(TOTALS, result.datasets[f"{name}/curves"].values, (9, 10), strict=True):
            line = lines[f"{label}, $10^{{{power}}}$ scores"]
            assert total == 10**power
            np.testing.assert_array_equal(line.get_xdata(), RANKS)
            np.testing.assert_array_equal(line.get_ydata(), seconds.sum(axis=1))
    stars = [
        tuple(map(tuple, line.get_xydata()))
        for panel in axes[:2]
        for line in panel.get_lines()
        if line.get_marker() == "*"
    ]
    assert stars == [((100.0, 7.0),), ((1000.0, 70.0),), ((1000.0, 2.5),)]
    ring = result.datasets["ring/curves"].values.sum(axis=1)
    np.testing.assert_array_equal(axes[1].get_lines()[0].get_ydata(), ring)


def test_bars_are_the_shares_of_the_phases() -> None:
    for axes, n_curves, phases in zip(draw(scaling()).axes[2:], (2, 1), (SortJob.phases, RingJob.phases), strict=True):
        heights = np.array([bar.get_height() for bar in axes.patches]).reshape(4 * n_curves, len(phases))
        np.testing.assert_allclose(heights.sum(axis=1), 100.0)
        np.testing.assert_allclose(heights[0], 100.0 * np.arange(1, len(phases) + 1) / sum(range(len(phases) + 1)))
        assert len(axes.get_legend().get_texts()) == len(phases)


# ---------------------------------------------------------------------------------------------------------------------
# scripts/scaling_complete.py


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("mpi4py")
    monkeypatch.syspath_prepend(REPOSITORY / "scripts")
    import scaling_complete

    return scaling_complete


def test_statistics_are_measured_on_any_number_of_ranks(comm: Any, shared_tmp_path: Path, script: Any) -> None:
    file = shared_tmp_path / "complete.h5"
    script.measure(comm, Namespace(output=file, cores=comm.size, share=1e-3))
    comm.barrier()
    for name in script.STATISTICS:
        found = script.read(name, load(file))
        wanted = [cell.job for cell in script.measured_cells(comm.size, 1e-3)]
        assert [each.job for each in found] == [job for job in wanted if isinstance(job, script.STATISTICS[name])]
        assert all(each.cpu >= each.computing > 0.0 and each.wall > 0.0 and each.own is None for each in found)


@pytest.mark.usefixtures("alone")
def test_what_was_pretended_is_fitted_predicted_and_drawn(
    tmp_path: Path, script: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpi4py import MPI

    jobs = [SortJob((p * n, p * n), p) for p, n in ((1, 1000), (1, 20_000), (5, 3000), (90, 100), (400, 30))]
    jobs += [
        RingJob((n, n), p, k) for p, k, n in ((1, 3, 90), (1, 12, 200), (2, 5, 400), (20, 60, 300), (100, 100, 100))
    ]
    monkeypatch.setattr(script, "pretended_cells", lambda: [script.Cell("whole", job, 2) for job in jobs])
    pretended, measured, rounds, fitted = (tmp_path / f"{name}.h5" for name in ("one", "two", "rounds", "fit"))
    script.pretend(MPI.COMM_SELF, Namespace(output=pretended))
    script.measure(MPI.COMM_SELF, Namespace(output=measured, cores=1, share=1e-3))
    save(rounds, ResultFile("scaling", {}, {}, {"constants": Dataset(np.full(len(CONSTANTS), 1e-9))}, {}))
    script.analyse(MPI.COMM_SELF, Namespace(files=[pretended, measured], rounds=rounds, output=fitted))
    assert "| ring (s) |" in capsys.readouterr().out
    result = load(fitted)
    values = {name: dataset.values for name, dataset in result.datasets.items()}
    for name, kind in script.STATISTICS.items():
        own = load(pretended).datasets[f"{name}/own"].values.sum(axis=1)
        computing = load(measured).datasets[f"{name}/computing"].values
        np.testing.assert_allclose(values[f"{name}/computing"], np.append(own, computing))
        assert values[f"{name}/pretended"].tolist() == [True] * len(own) + [False] * len(computing)
        assert (values[f"{name}/constants"] >= 0.0).all() and (values[f"{name}/predicted"] > 0.0).all()
        assert values[f"{name}/curves"].shape[-1] == len(kind.phases)
    draw(result)
