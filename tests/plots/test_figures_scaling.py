"""The measurement of scaling and its picture: what is drawn is what the files hold."""

from __future__ import annotations

import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REPOSITORY
from costmodel import CONSTANTS, PHASES

from mpi_ustat.app.cli import main
from mpi_ustat.errors import UserError
from mpi_ustat.plots.pictures import draw, save_figure
from mpi_ustat.storage.results import Dataset, ResultFile, load

pytest.importorskip("matplotlib")

RANKS = np.array([1, 2, 4, 10, 100, 1000, 10_000])
NETWORKS = np.array(["shared memory", "TCP, 1 Gbit/s", "assumed: 2 µs, 100 Gbit/s"])


def scaling() -> ResultFile:
    """Return a result of which each point is told by its seconds: 10 for every rank, and 1 for TCP."""
    found = [
        (case, network, n_ranks, cores, n_pairs)
        for case in ("strong", "weak", "")
        for network, n_ranks, cores in (
            ("shared memory", 1, 1.0),
            ("shared memory", 2, 1.0),
            ("shared memory", 4, 2.0),
            ("TCP, 1 Gbit/s", 2, 1.0),
            ("TCP, 1 Gbit/s", 4, 2.0),
        )
        for n_pairs in (0, 1000)
    ]
    case, network, n_ranks, cores, n_pairs = (np.array(column) for column in zip(*found, strict=True))
    parts = np.arange(1.0, len(PHASES) + 1)
    curves = np.arange(1.0, 4.0)[:, None, None] / np.sqrt(RANKS)[None, :, None] * parts
    datasets = {
        "case": Dataset(case),
        "network": Dataset(network),
        "n_ranks": Dataset(n_ranks),
        "n_pairs": Dataset(n_pairs),
        "ranks_per_core": Dataset(cores),
        "measured": Dataset(10.0 * n_ranks + (network != "shared memory") + 0.1 * (n_pairs > 0)),
        **{f"curves/{name}": Dataset(k * curves) for k, name in ((1.0, "strong"), (50.0, "large"), (0.1, "weak"))},
    }
    config = {"strong": 10**7, "large": 10**9, "weak": 3 * 10**6, "n_workers": 10_000}
    scales = {"phase": np.array(PHASES), "networks": NETWORKS, "rank": RANKS}
    return ResultFile("scaling", config, {}, datasets, scales)


def labelled(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}


def test_points_are_what_was_measured_and_hollow_where_cores_were_shared() -> None:
    for axes in draw(scaling()).axes[:2]:
        found = labelled(axes)
        for network, alone, shared in (("shared memory", [10, 20], [40]), ("TCP, 1 Gbit/s", [21], [41])):
            filled, hollow = found[f"measured: {network}"], found[f"measured: {network} (oversubscribed)"]
            assert filled.get_ydata().tolist() == alone
            assert hollow.get_ydata().tolist() == shared
            assert filled.get_markerfacecolor() == filled.get_markeredgecolor() == hollow.get_markeredgecolor()
            assert hollow.get_markerfacecolor() == "white"
        assert [text.get_text() for text in axes.texts].count("oversubscribed") == 1


def test_lines_are_the_model_dashed_beyond_what_was_measured() -> None:
    result = scaling()
    for axes, case in zip(draw(result).axes[:2], ("strong", "weak"), strict=True):
        total, found = result.datasets[f"curves/{case}"].values.sum(axis=2), labelled(axes)
        shared, tcp, assumed = (found[f"model: {name}"] for name in NETWORKS)
        assert shared.get_linestyle() == "-"
        assert shared.get_xdata().tolist() == [1, 2]
        for line, of_network in ((tcp, total[1]), (assumed, total[2])):
            assert line.get_linestyle() == "--"
            np.testing.assert_array_equal(line.get_xdata(), RANKS[1:])
            np.testing.assert_array_equal(line.get_ydata(), of_network[1:])
        ideal = found["ideal"].get_ydata()
        assert ideal[-1] == pytest.approx(total[0, 0] * (1e-4 if case == "strong" else 1.0))


def test_bars_are_the_shares_of_the_phases() -> None:
    figure = draw(scaling())
    for axes in figure.axes[2:]:
        heights = np.array([bar.get_height() for bar in axes.patches]).reshape(8, len(PHASES))
        np.testing.assert_allclose(heights.sum(axis=1), 100.0)
        assert sorted(heights[0]) == pytest.approx(100.0 * np.arange(1.0, 7.0) / 21.0)
        assert [text.get_text()[:3] for text in axes.get_xticklabels()] == ["P ="] * 4
    note = figure.legends[0].get_title().get_text()
    assert "bisection bandwidth" in note and "pretended" in note


def test_the_figure_is_drawn_within_its_edges(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that finds no room only warns
        warnings.filterwarnings("ignore", ".*deprecated")  # an old matplotlib calls a new pyparsing
        figure = draw(scaling())
        save_figure(figure, tmp_path / "figure.png")
    edges = figure.bbox.padded(1.0)
    for each in (*figure.axes, *figure.legends):
        box = each.get_tightbbox()
        assert edges.contains(box.x0, box.y0) and edges.contains(box.x1, box.y1)


def test_incomplete_files_are_refused() -> None:
    result = scaling()
    del result.datasets["curves/weak"]
    with pytest.raises(UserError, match="holds no 'curves/weak' to draw"):
        draw(result)


# ---------------------------------------------------------------------------------------------------------------------
# scripts/scaling.py


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("mpi4py")
    monkeypatch.syspath_prepend(REPOSITORY / "scripts")
    import scaling

    return scaling


def options(output: Path, *, share: float) -> Namespace:
    return Namespace(network="shared memory", output=output, runs=1, cores=4, share=share)


def test_rounds_are_measured_on_any_number_of_ranks(comm: Any, shared_tmp_path: Path, script: Any) -> None:
    file = shared_tmp_path / "rounds.h5"
    script.measure(comm, options(file, share=2e-4))
    comm.barrier()
    result = load(file)
    seconds = {name: result.datasets[name].values for name in ("draw", "exchange", "evaluate", "reduce", "total")}
    assert all((values > 0.0).all() for values in seconds.values())
    assert (result.datasets["n_ranks"].values == comm.size).all()
    assert result.config["ranks_per_core"] == 1.0
    assert (result.config["latency"] > 0.0) == (comm.size > 1)
    cells = script.cells(comm.size, 2e-4)
    assert [(case, each.job) for case, each in script.read(result)] == list(cells)


@pytest.mark.usefixtures("alone")
def test_what_was_measured_is_fitted_predicted_and_drawn(
    tmp_path: Path, script: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpi4py import MPI

    # As with all rows and workers, some have keys and some don't.
    monkeypatch.setattr("mpi_ustat.numerics.arrangement._key_bits", lambda n_labels: 10)
    monkeypatch.setattr("mpi_ustat.numerics.arrangement._MOST_LABELS", 400)
    # As with all, some draw a whole matrix and some a tree.
    monkeypatch.setattr("mpi_ustat.schemes.partition._WHOLE_MATRIX", 500)
    monkeypatch.setattr("mpi_ustat.schemes.partition._BOTTOM_ROWS", 1000)
    rounds, fitted = tmp_path / "rounds.h5", tmp_path / "scaling.h5"
    script.measure(MPI.COMM_SELF, options(rounds, share=0.03))
    script.analyse(MPI.COMM_SELF, Namespace(files=[rounds], output=fitted, before=None))
    assert "predicted / measured" in capsys.readouterr().out
    result = load(fitted)
    assert result.datasets["fitted"].values.all()
    constants = result.datasets["constants"].values
    assert constants.shape == (len(CONSTANTS),)
    assert (constants >= 0.0).all()
    np.testing.assert_array_equal(result.datasets["measured"].values, load(rounds).datasets["total"].values)
    phases = result.datasets["predicted_phases"].values
    np.testing.assert_allclose(phases.sum(axis=1), result.datasets["predicted"].values)
    assert result.datasets["curves/weak"].values.shape == (1, len(result.scales["rank"]), len(PHASES))
    assert main(["plot", str(fitted)]) == 0
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("n_workers", "n_ranks"), [(8, 8), (50, 4)])
def test_one_rank_of_many_that_are_not_there_does_its_own_part(n_workers: int, n_ranks: int, script: Any) -> None:
    job = script.Job((4000, 900), n_workers, n_ranks)
    draw_, exchange, evaluate, reduce, total = script.pretended(n_ranks // 3, job, 2)
    assert draw_ > 0.0 and 0.0 < exchange < total and 0.0 < evaluate < total and 0.0 < reduce < total


@pytest.mark.usefixtures("script")
def test_the_stand_in_sends_what_fills_the_blocks() -> None:
    from standin import DealingStandIn

    comm = DealingStandIn(4, 1, [np.array([50, 51])])
    told, heard = np.zeros((2, 4, 2, 3), dtype=np.int64)
    told[1] = 7
    comm.Alltoall(told, heard)
    assert heard.sum(axis=(0, 2)).tolist() == [50, 51] and np.array_equal(heard[1], told[1])
    received = np.zeros(5)
    comm.Alltoallv([np.arange(2.0)], [received])
    assert received.tolist() == [0, 1, 0, 1, 0] and comm.seconds > 0.0
    assert comm.allgather("a") == ["a"] * 4
