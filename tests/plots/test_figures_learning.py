"""Pictures of descents: what is drawn is what the files hold, and `mpi-ustat plot` finds the picture of each kind."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_ustat.app.cli import main
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.plots.displays import LearningDisplay
from mpi_ustat.plots.drawing import BAR_STANDARD_ERRORS
from mpi_ustat.plots.pictures import PICTURES, draw, save_figure
from mpi_ustat.storage.results import Dataset, ResultFile, save

Figure = pytest.importorskip("matplotlib.figure").Figure

FREQUENCIES = np.array([1, 5, 25, 125, 0])
NAMES = ["$n_r$ = 1", "$n_r$ = 5", "$n_r$ = 25", "$n_r$ = 125", "never repartitioned"]
OPTIONS = LearnConfig(n_workers=1000, batch_pairs=10, iterations=700, seed=1).to_json()
ITERATIONS = np.arange(0, 701, 100)


def falling(shape: tuple[int, ...], start: float, end: float) -> np.ndarray[Any, Any]:
    """Return values that fall along the last axis and end a little higher for each later row."""
    steps = np.arange(shape[-1])
    rows = 0.01 * end * np.arange(np.prod(shape[:-1], dtype=int)).reshape(shape[:-1])
    return np.asarray(end + rows[..., np.newaxis] + (start - end) * 0.2**steps)


def learn(**replaced: Any) -> ResultFile:
    histories = {
        "iteration": ITERATIONS,
        "train_loss": falling((8,), 3.0, 0.04),
        "train_auc": 1.0 - falling((8,), 0.5, 0.009),
        "test_loss": falling((8,), 3.2, 0.06),
        "test_auc": 1.0 - falling((8,), 0.6, 0.012),
    }
    datasets = {f"history/{name}": Dataset(values) for name, values in (histories | replaced).items()}
    return ResultFile("learn", OPTIONS | {"data": {"files": ["points.csv"]}}, {}, datasets)


def test_the_kept_iteration_is_marked_and_the_losses_of_its_parameters_told() -> None:
    validation = {"validation_loss": falling((8,), 3.1, 0.05), "validation_auc": 1.0 - falling((8,), 0.5, 0.011)}
    result = learn(**validation)
    figure = draw(ResultFile(result.kind, result.config, {"kept_iteration": 300}, result.datasets))
    for axes, name in zip(figure.axes, ("loss", "auc"), strict=True):
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert list(np.ravel(lines["kept: iteration 300"].get_xdata())) == [300, 300]
        curve = np.abs(float(name == "auc") - validation[f"validation_{name}"])
        np.testing.assert_array_equal(lines[f"validation points, kept {curve[3]:.4g}"].get_ydata(), curve)


def test_a_descent_in_axes_of_the_user_keeps_to_them() -> None:
    figure = Figure(figsize=(7, 6))
    axes = figure.subplots(2, 2)[1, 1]
    axes.set_title("mine")
    LearningDisplay(learn()).plot(axes)
    figure.tight_layout()
    figure.draw_without_rendering()
    legend, room = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert axes.get_title() == "mine" and not axes.get_title(loc="left") and not axes.texts
    assert room.x0 <= legend.x0 and legend.x1 <= room.x1 and room.y0 <= legend.y0 and legend.y1 <= room.y1


def figure4(kind: str = "fig4-as-described") -> ResultFile:
    datasets = {}
    for name, start, end in (("test_loss", 4.0, 0.06), ("train_loss", 3.8, 0.04)):
        median = falling((5, 8), start, end)
        datasets |= {f"{part}/{name}": Dataset(k * median) for part, k in (("low", 0.9), ("median", 1), ("high", 1.2))}
        datasets[f"optimum/{name}"] = Dataset(np.array(0.99 * end))
    for name, start, end in (("test_auc", 0.5, 0.012), ("train_auc", 0.5, 0.009)):
        median = falling((5, 8), start, end)
        datasets |= {
            f"{part}/{name}": Dataset(1.0 - k * median) for part, k in (("low", 1.2), ("median", 1), ("high", 0.9))
        }
        datasets[f"optimum/{name}"] = Dataset(np.array(1.0 - 0.99 * end))
    config = OPTIONS | {"preset": kind.removeprefix("fig4-"), "n_runs": 100}
    return ResultFile(kind, config, {}, datasets, {"n_r": FREQUENCIES, "evaluation": ITERATIONS})


def map_of_excess() -> ResultFile:
    workers = np.array([10, 100, 1000])
    excess = np.outer([0.001, 0.002, 0.01], [0.1, 0.2, 0.4, 0.7, 1.0])
    datasets = {
        "excess": Dataset(excess),
        "excess_standard_error": Dataset(0.2 * excess),
        "points_per_worker": Dataset(1000 / workers),
    }
    config = OPTIONS | {"n_runs": 10, "n": 1000, "d": 20, "shift": 1.5, "pairs": 10_000}
    return ResultFile("fig4-map", config, {}, datasets, {"N": workers, "n_r": FREQUENCIES})


def tradeoff(setting: str, *, slower: float = 1.0, sent: bool = True, scores: bool = False) -> ResultFile:
    steps = np.arange(8.0)
    datasets = {
        "seconds": Dataset(slower * np.outer([5.0, 3.0, 2.0, 1.5, 1.0], steps), unit="s"),
        "bytes_moved": Dataset(sent * np.outer([1e8, 2e7, 4e6, 8e5, 0.0], steps), unit="bytes"),
        "bytes_reduced": Dataset(sent * np.outer(np.ones(5), 1e5 * steps), unit="bytes"),
        "test_loss": Dataset(falling((5, 8), 4.0, 0.38)),
    }
    config = {name: value for name, value in OPTIONS.items() if name != "repartition_every"}
    scales = {"n_r": FREQUENCIES, "evaluation": ITERATIONS}
    if scores:
        scales["points"] = np.array([1000, 200])
        datasets |= {
            "by_scores/seconds": Dataset(np.outer([2.5, 1.2], steps), unit="s"),
            "by_scores/bytes_moved": Dataset(np.outer([2e7, 4e6], steps), unit="bytes"),
            "by_scores/bytes_reduced": Dataset(np.outer(np.ones(2), 1e5 * steps), unit="bytes"),
            "by_scores/test_loss": Dataset(falling((2, 8), 4.0, 0.37)),
            "optimum/test_loss": Dataset(np.array(0.3695)),
        }
    return ResultFile("tradeoff", config | {"setting": setting, "runs": 3}, {}, datasets, scales)


def values(result: ResultFile, name: str) -> Any:
    return result.datasets[name].values


def labelled(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}


def starting(found: dict[str, Any], start: str) -> Any:
    (one,) = [each for label, each in found.items() if label.startswith(start)]
    return one


def levels(axes: Any) -> list[float]:
    """Return where the horizontal lines across the axes are."""
    return sorted(line.get_ydata()[0] for line in axes.get_lines() if list(line.get_xdata()) == [0, 1])


def note(figure: Any) -> str:
    return str(figure.legends[0].get_title().get_text()).replace("\N{NARROW NO-BREAK SPACE}", "")


@pytest.mark.parametrize(
    "figure",
    [
        lambda: draw(learn()),
        lambda: draw(figure4()),
        lambda: draw(figure4("fig4-as-published")),
        lambda: draw(map_of_excess()),
        lambda: draw(tradeoff("2 ranks, shared memory"), tradeoff("4 hosts", slower=7.0)),
        lambda: draw(tradeoff("one rank", sent=False)),
        lambda: draw(tradeoff("2 ranks", scores=True), tradeoff("4 hosts", slower=7.0, scores=True)),
    ],
    ids=["learn", "as-described", "as-published", "map", "tradeoff", "nothing sent", "scores"],
)
def test_every_figure_is_drawn_within_its_edges(figure: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that finds no room only warns
        warnings.filterwarnings("ignore", ".*deprecated")  # an old matplotlib calls a new pyparsing
        drawn = figure()
        save_figure(drawn, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    edges = drawn.bbox.padded(1.0)
    for each in (*drawn.axes, *drawn.legends):
        box = each.get_tightbbox()
        assert edges.contains(box.x0, box.y0) and edges.contains(box.x1, box.y1)


def test_a_descent_is_drawn_by_iteration() -> None:
    result = learn()
    figure = draw(result)
    loss, ranking = figure.axes
    for axes, name, complement in ((loss, "loss", False), (ranking, "auc", True)):
        for points in ("test", "train"):
            line = starting(labelled(axes), points)
            expected = values(result, f"history/{points}_{name}")
            np.testing.assert_array_equal(line.get_xdata(), ITERATIONS)
            np.testing.assert_allclose(line.get_ydata(), 1.0 - expected if complement else expected, rtol=1e-12)
        assert axes.get_yscale() == "log"
    assert loss.get_title(loc="left") == "Learning: hinge loss on points.csv"
    subtitle = loss.texts[0].get_text().replace("\N{NARROW NO-BREAK SPACE}", "")
    assert subtitle == "$n_r$ = 25, N = 1000 workers, B = 10 pairs per worker, prop-swor"
    assert (
        starting(labelled(loss), "test").get_label()
        == f"test points, at last {values(result, 'history/test_loss')[-1]:.4g}"
    )


def test_what_a_descent_lacks_is_left_out() -> None:
    missing = np.full(8, np.nan)
    figure = draw(learn(test_loss=missing, test_auc=missing))
    assert [[label.split()[0] for label in labelled(axes)] for axes in figure.axes] == [["train"], ["train"]]
    figure = draw(learn(test_auc=missing, train_auc=missing))
    assert len(figure.axes) == 1
    assert len(labelled(figure.axes[0])) == 2
    with pytest.raises(UserError, match="no evaluation"):
        draw(learn(test_auc=missing, train_auc=missing, test_loss=missing, train_loss=missing))


def test_axes_are_linear_where_a_logarithm_has_no_place_or_use() -> None:
    figure = draw(learn(train_auc=np.ones(8), train_loss=np.linspace(0.4, 0.3, 8), test_loss=np.full(8, 0.3)))
    assert [axes.get_yscale() for axes in figure.axes] == ["linear", "linear"]


def test_all_local_pairs_and_never_are_named() -> None:
    result = learn()
    config = result.config | {"batch_pairs": None, "repartition_every": None}
    figure = draw(ResultFile("learn", config, {}, result.datasets))
    text = figure.axes[0].texts[0].get_text()
    assert text.startswith("never repartitioned, ") and "B = all local pairs" in text


@pytest.mark.parametrize("kind", ["fig4-as-described", "fig4-as-published"])
def test_figure_4_has_a_column_for_each_frequency(kind: str) -> None:
    result = figure4(kind)
    figure = draw(result)
    axes = np.array(figure.axes).reshape(3, 5)
    assert [each.get_title() for each in axes[0]] == NAMES
    for row, name, train in ((axes[0], "loss", True), (axes[1], "loss", False), (axes[2], "auc", True)):
        complement = name == "auc"
        for j, each in enumerate(row):
            found = labelled(each)
            for points in ("test", "train") if train else ("test",):
                expected = values(result, f"median/{points}_{name}")[j]
                line = found[f"{points}, median"]
                np.testing.assert_array_equal(line.get_xdata(), ITERATIONS)
                np.testing.assert_allclose(line.get_ydata(), 1.0 - expected if complement else expected, rtol=1e-12)
            assert ("train, median" in found) is train
            (band,) = each.collections
            ends = band.get_paths()[0].vertices[:, 1]
            limits = [values(result, f"{part}/test_{name}")[j] for part in ("low", "high")]
            expected = np.sort(1.0 - np.array(limits) if complement else np.array(limits), axis=0)
            assert ends.min() == pytest.approx(expected[0].min()) and ends.max() == pytest.approx(expected[1].max())
            optima = [float(values(result, f"optimum/{points}_{name}")) for points in ("test", "train")[: 1 + train]]
            assert levels(each) == pytest.approx(sorted(1.0 - o if complement else o for o in optima))
        assert len({each.get_ylim() for each in row}) == 1
    assert axes[0, 0].get_yscale() == "log"
    preset = kind.removeprefix("fig4-").replace("-", " ")
    assert preset in figure.get_suptitle()
    assert "100 runs" in note(figure) and "N = 1000 workers" in note(figure) and "cut off" in note(figure)


def test_figure_4_has_a_column_of_exchanged_scores() -> None:
    result = figure4()
    for name in ("test_loss", "train_loss", "test_auc", "train_auc"):
        for part in ("low", "median", "high"):
            found = values(result, f"{part}/{name}")[2]
            result.datasets[f"by_scores/{part}/{name}"] = Dataset(found * (0.98 if "loss" in name else 1.0))
    result.config["scores_of_points"] = 30
    figure = draw(result)
    assert "of 30 points of each class a worker" in note(figure)
    axes = np.array(figure.axes).reshape(3, 6)
    assert [each.get_title() for each in axes[0]] == [*NAMES, "scores exchanged"]
    for row, name in ((axes[0], "loss"), (axes[1], "loss"), (axes[2], "auc")):
        expected = values(result, f"by_scores/median/test_{name}")
        drawn = labelled(row[-1])["test, median"].get_ydata()
        np.testing.assert_allclose(drawn, 1.0 - expected if name == "auc" else expected, rtol=1e-12)
    assert axes[1, 0].get_ylim()[0] < values(result, "by_scores/low/test_loss")[-1]


def test_figure_4_shows_the_bands_of_the_second_half() -> None:
    result = figure4()
    axes = np.array(draw(result).axes).reshape(3, 5)
    late = ITERATIONS >= 350
    low, high = values(result, "low/test_loss")[:, late].min(), values(result, "high/test_loss")[:, late].max()
    bottom, top = axes[1, 0].get_ylim()
    assert bottom < low < high < top
    assert high - low > 0.8 * (top - bottom)


def test_the_map_has_a_line_with_bars_for_each_frequency() -> None:
    result = map_of_excess()
    figure = draw(result)
    (axes,) = figure.axes
    points = values(result, "points_per_worker")
    assert [container.get_label() for container in axes.containers] == NAMES
    for j, container in enumerate(axes.containers):
        line, _, (bars,) = container.lines
        np.testing.assert_allclose(line.get_xdata(), points, rtol=0.08)  # side by side
        np.testing.assert_array_equal(line.get_ydata(), values(result, "excess")[:, j])
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        error = BAR_STANDARD_ERRORS * values(result, "excess_standard_error")[:, j]
        np.testing.assert_allclose(ends.mean(axis=1), values(result, "excess")[:, j], rtol=1e-9)
        np.testing.assert_allclose(np.diff(ends)[:, 0], 2 * error, rtol=1e-9)
    assert axes.get_xscale() == "log"
    ticks = [text.get_text().replace("\N{NARROW NO-BREAK SPACE}", "") for text in axes.get_xticklabels()]
    assert ticks == ["100\nN = 10", "10\nN = 100", "1\nN = 1000"]
    assert "10 runs" in note(figure) and "± 2 standard errors" in note(figure)


def test_the_tradeoff_has_a_row_for_each_setting() -> None:
    results = [tradeoff("2 ranks, shared memory"), tradeoff("4 hosts", slower=7.0)]
    figure = draw(*results)
    axes = np.array(figure.axes).reshape(2, 2)
    colours = []
    for row, result in zip(axes, results, strict=True):
        assert row[0].get_title(loc="left") == result.config["setting"]
        costs = (values(result, "seconds"), values(result, "bytes_moved") + values(result, "bytes_reduced"))
        for each, cost in zip(row, costs, strict=True):
            found = labelled(each)
            assert list(found) == NAMES
            for j, line in enumerate(found.values()):
                np.testing.assert_array_equal(line.get_xdata(), cost[j, 1:])  # nothing was spent before the first step
                np.testing.assert_array_equal(line.get_ydata(), values(result, "test_loss")[j, 1:])
            colours.append([line.get_color() for line in found.values()])
            assert each.get_xscale() == "log"
            assert each.get_xlim()[1] > cost.max()
            assert each.get_ylim() == axes[0, 0].get_ylim()
    assert len(set(colours[0])) == 5
    assert all(each == colours[0] for each in colours)
    assert axes[0, 0].get_xlim() == axes[1, 0].get_xlim()
    assert axes[0, 0].get_ylim()[1] < 2.0  # not of the start, 4.0
    assert note(figure).count("medians of 3 runs") == 1  # once for both


def test_the_tradeoff_has_scores_beside_rows() -> None:
    result = tradeoff("2 ranks", scores=True)
    seconds, sent = draw(result).axes
    for axes, cost in ((seconds, "by_scores/seconds"), (sent, "by_scores/bytes_moved")):
        lines = {line.get_label(): line for line in axes.lines}
        for j, label in enumerate(("scores, all points", "scores, 200 of each class")):
            more = values(result, "by_scores/bytes_reduced")[j] if axes is sent else 0.0
            np.testing.assert_array_equal(lines[label].get_xdata(), (values(result, cost)[j] + more)[1:])
            np.testing.assert_array_equal(lines[label].get_ydata(), values(result, "by_scores/test_loss")[j, 1:])
        assert set(lines["full-batch optimum"].get_ydata()) == {0.3695}


def test_a_tradeoff_without_messages_says_so() -> None:
    figure = draw(tradeoff("one rank", sent=False))
    assert [text.get_text() for text in figure.axes[1].texts] == ["nothing was sent"]
    assert len(labelled(figure.axes[0])) == 5


def test_other_kinds_and_incomplete_files_are_refused() -> None:
    for kind in ("learn", "fig4-as-described", "fig4-map", "tradeoff"):
        with pytest.raises(UserError, match=f"this '{kind}' file holds no '.+' to draw"):
            draw(ResultFile(kind))
    with pytest.raises(UserError, match="kind 'lean' has no picture: give one of estimate, .*learn, .*, tradeoff"):
        draw(ResultFile("lean"))
    incomplete = tradeoff("somewhere")
    del incomplete.datasets["bytes_moved"]
    with pytest.raises(UserError, match="'bytes_moved'"):
        draw(incomplete)


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    for figure in (
        lambda: draw(learn()),
        lambda: draw(figure4()),
        lambda: draw(map_of_excess()),
        lambda: draw(tradeoff("2 ranks")),
    ):
        with pytest.raises(UserError, match=r"pip install 'mpi_ustat\[plot\]'"):
            figure()


# ---------------------------------------------------------------------------------------------------------------------
# mpi-ustat plot


def estimate() -> ResultFile:
    return ResultFile("estimate", {"kernel": "gini", "complete": True}, {}, {"estimate": Dataset(np.array(0.75))})


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("make", [estimate, learn, figure4, map_of_excess, lambda: tradeoff("2 ranks")])
def test_plot_draws_every_kind(make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "r.h5", make())
    assert main(["plot", str(tmp_path / "r.h5")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'r.png'}\n"
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("alone")
def test_plot_draws_tradeoffs_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("a.h5", "b.h5")]
    for file in files:
        save(file, tradeoff(file[-4]))
    target = tmp_path / "both.svg"
    assert main(["plot", *files, "--output", str(target)]) == 0
    assert "<svg" in target.read_text()
    assert main(["plot", *files, "--output", str(target)]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["plot", *files]) == 2
    assert "add --output" in capsys.readouterr().err


@pytest.mark.usefixtures("alone")
def test_plot_refuses_what_has_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, result in (("l", learn()), ("t", tradeoff("2 ranks")), ("p", ResultFile("partial"))):
        save(tmp_path / f"{name}.h5", result)
    picture = ["--output", str(tmp_path / "picture.png")]
    for names in (("l", "t"), ("l", "l")):
        assert main(["plot", *(str(tmp_path / f"{name}.h5") for name in names), *picture]) == 2
        message = capsys.readouterr().err
        assert "only files of kind 'tradeoff'" in message and "'learn'" in message
    assert main(["plot", str(tmp_path / "p.h5"), *picture]) == 2
    message = capsys.readouterr().err
    assert "'partial' has no picture" in message
    assert all(kind in message for kind in ("estimate", "learn", "tradeoff", *PICTURES))
    assert not (tmp_path / "picture.png").exists()
