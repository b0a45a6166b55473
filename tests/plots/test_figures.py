"""Figures: the right data are drawn, and files are whole or absent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_ustat.errors import UserError
from mpi_ustat.plots.pictures import draw, save_figure
from mpi_ustat.storage.results import Dataset, ResultFile, load, save

matplotlib = pytest.importorskip("matplotlib")


def estimate(n_rounds: int, n_workers: int, *, aggregate: str = "mean", **scalars: float) -> ResultFile:
    values = 0.8 + 0.01 * np.sin(np.arange(n_rounds * n_workers, dtype=float)).reshape(n_rounds, n_workers)
    rounds = values.mean(axis=1)
    datasets = {
        "estimate": Dataset(np.array(rounds.mean())),
        "per_round/value": Dataset(rounds, ("round",)),
        "per_round/n_pairs": Dataset(np.arange(1, n_rounds + 1), ("round",)),
        "per_worker/value": Dataset(values, ("round", "worker")),
    }
    datasets |= {name: Dataset(np.array(value)) for name, value in scalars.items()}
    config = {"kernel": "auc", "scheme": "prop-swor", "n_workers": n_workers, "n_rounds": n_rounds, "n_pairs": 1000}
    scales = {"round": np.arange(n_rounds), "worker": np.arange(n_workers)}
    return ResultFile("estimate", config | {"aggregate": aggregate}, datasets=datasets, scales=scales)


def lines(figure: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in figure.axes[0].get_lines()}


def starting(found: dict[str, Any], start: str) -> Any:
    (line,) = [line for label, line in found.items() if label.startswith(start)]
    return line


def test_rounds_are_drawn_with_their_running_mean() -> None:
    result = estimate(20, 10, complete_value=0.81, stderr=0.001, stderr_to_complete=0.0004)
    result.datasets["interval"] = Dataset(np.array([0.79, 0.83]))
    figure = draw(result)
    found = lines(figure)
    rounds = result.datasets["per_round/value"].values
    np.testing.assert_array_equal(starting(found, "value of the round").get_ydata(), rounds)
    np.testing.assert_array_equal(starting(found, "value of the round").get_xdata(), np.arange(20))
    running = starting(found, "mean of the rounds").get_ydata()
    np.testing.assert_allclose(running, [rounds[: t + 1].mean() for t in range(20)], rtol=1e-12)
    workers = starting(found, "value of a worker").get_ydata()
    np.testing.assert_array_equal(workers, result.datasets["per_worker/value"].values.reshape(-1))
    assert set(starting(found, "complete statistic").get_ydata()) == {0.81}
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "auc, prop-swor"
    subtitle = axes.texts[0].get_text().replace("\N{NARROW NO-BREAK SPACE}", "")
    assert subtitle == "N = 10 workers, T = 20 rounds, B = 1000 pairs per worker"
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"95 % interval, for the population's value", "estimate ± standard error to $U_n$"} <= {*legend}
    assert len(legend) == 6
    wide, narrow = figure.axes[0].patches
    assert (wide.get_y(), wide.get_height()) == pytest.approx((0.79, 0.04))
    assert narrow.get_height() == pytest.approx(0.0008)


def test_the_running_mean_of_pooled_rounds_is_weighted() -> None:
    result = estimate(5, 3, aggregate="pooled")
    rounds = result.datasets["per_round/value"].values
    running = starting(lines(draw(result)), "mean of the rounds").get_ydata()
    assert running[-1] == pytest.approx(np.average(rounds, weights=np.arange(1, 6)), rel=1e-12)


def test_one_round_is_drawn_by_worker() -> None:
    result = estimate(1, 6, complete_value=0.81)
    values = result.datasets["per_worker/value"].values
    values[0, 2] = np.nan
    found = lines(draw(result))
    dots = starting(found, "value of the worker (1 worker without pairs)")
    np.testing.assert_array_equal(dots.get_xdata(), [0, 1, 3, 4, 5])
    np.testing.assert_array_equal(dots.get_ydata(), values[0, [0, 1, 3, 4, 5]])
    assert set(starting(found, "estimate").get_ydata()) == {float(result.datasets["estimate"].values)}
    assert "complete statistic 0.81" in found


def test_crowds_are_drawn_as_ranges() -> None:
    result = estimate(300, 100)
    figure = draw(result)
    assert not [label for label in lines(figure) if label.startswith("value of a worker")]
    (band,) = figure.axes[0].collections
    assert band.get_label() == "range of the workers' values"
    top = band.get_datalim(figure.axes[0].transData).ymax
    assert top == pytest.approx(result.datasets["per_worker/value"].values.max())


@pytest.mark.parametrize("edges", [None, [0.0, 0.1, 0.5, 1.0]])
def test_a_histogram_is_drawn_between_its_edges(edges: list[float] | None) -> None:
    n = 3 if edges else 20
    shares = np.arange(1.0, n + 1.0) / 300.0
    datasets = {"estimate": Dataset(shares, ("column",), "1")}
    datasets["interval"] = Dataset(np.column_stack([shares / 2.0, shares * 1.5]), ("column", "lower and upper"))
    options = {} if edges is None else {"edges": edges}
    config = {"kernel": "similarity-histogram", "complete": True, "kernel_options": options}
    axes = draw(ResultFile("estimate", config, datasets=datasets)).axes[0]
    (bins,) = [patch for patch in axes.patches if hasattr(patch, "get_data")]
    np.testing.assert_array_equal(bins.get_data().values, shares)
    wanted = edges or [i / 10 - 1.0 for i in range(21)]
    np.testing.assert_array_equal(bins.get_data().edges, wanted)
    assert [text.get_text() for text in axes.get_xticklabels()] == [f"{edge:g}" for edge in wanted]


@pytest.mark.parametrize("stderr", [None, 0.01])
def test_a_single_value_is_drawn_alone(stderr: float | None) -> None:
    datasets = {"estimate": Dataset(np.array(0.75), unit="1")}
    if stderr is not None:
        datasets["stderr"] = Dataset(np.array(stderr))
    figure = draw(ResultFile("estimate", {"kernel": "gini", "complete": True}, datasets=datasets))
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "gini, all pairs"
    assert axes.get_xlabel() == "gini U-statistic (dimensionless)"
    (point,) = [line for line in axes.get_lines() if line.get_marker() == "o"]
    np.testing.assert_array_equal(point.get_xdata(), [0.75])


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml"), (".PNG", b"\x89PNG")]
)
def test_pictures_are_written_in_the_format_of_the_suffix(tmp_path: Path, suffix: str, magic: bytes) -> None:
    save(tmp_path / "r.h5", estimate(3, 4))
    target = tmp_path / f"figure{suffix}"
    save_figure(draw(load(tmp_path / "r.h5")), target)
    content = target.read_bytes()
    assert content.startswith(magic)
    assert len(content) > 5000
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [target.name, "r.h5"]
    save_figure(draw(load(tmp_path / "r.h5")), target, overwrite=True)
    assert target.read_bytes() == content  # nothing in it depends on when it was made


def test_the_users_settings_neither_matter_nor_change(tmp_path: Path) -> None:
    save_figure(draw(estimate(3, 4)), tmp_path / "a.png")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        save_figure(draw(estimate(3, 4)), tmp_path / "b.png")
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = estimate(3, 4)
    for name in ("figure.jpeg", "figure"):
        with pytest.raises(UserError, match=r"\.png, \.pdf, \.svg"):
            save_figure(draw(result), tmp_path / name)
    with pytest.raises(UserError, match="kind 'lean' has no picture"):
        save_figure(draw(ResultFile("lean")), tmp_path / "a.png")
    with pytest.raises(UserError, match="holds no 'estimate' to draw"):
        save_figure(draw(ResultFile("estimate")), tmp_path / "a.png")
    with pytest.raises(UserError, match="does not exist"):
        save_figure(draw(result), tmp_path / "nowhere" / "a.png")
    figure = draw(result)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(UserError, match=r"pip install 'mpi_ustat\[plot\]'"):
        save_figure(draw(result), tmp_path / "a.png")
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
    (tmp_path / "a.png").write_text("as before")
    with pytest.raises(UserError, match="exists"):
        save_figure(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_text() == "as before"


@pytest.mark.parametrize(("sent", "panels"), [(0.0, ["predicted time (s)"]), (2e3, ["predicted time (s)", "bytes"])])
def test_a_plan_has_no_panel_of_what_costs_nothing(sent: float, panels: list[str]) -> None:
    n = 3
    columns = {"scheme": np.array(["complete", "prop-swor", "prop-swor"]), "stderr": np.array([0.1, 0.2, 0.15])}
    columns |= {"seconds": np.array([1.0, 0.1, 0.5]), "bytes_moved": sent * np.arange(n)}
    datasets = {name: Dataset(values, ("choice",), "", "") for name, values in columns.items()}
    datasets["recommended"] = Dataset(np.array(0), (), "", "")
    config = {"kernel": "auc", "sizes": [5, 7], "n_workers": 1, "n_ranks": 1, "target_stderr": 0.12}
    figure = draw(ResultFile("plan", config | {"budget_seconds": None}, {}, datasets))
    assert len(figure.axes) == len(panels)
    for axes, label in zip(figure.axes, panels, strict=True):
        assert axes.get_xlabel().startswith(label) and len(axes.get_lines()) > 2
