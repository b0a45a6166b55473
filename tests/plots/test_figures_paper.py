"""The paper's figures: what is drawn is what the files hold."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest

from mpi_ustat.errors import UserError
from mpi_ustat.paper.experiments import make_experiment
from mpi_ustat.plots.drawing import BAR_STANDARD_ERRORS
from mpi_ustat.plots.pictures import check_drawable, draw, save_figure
from mpi_ustat.storage.results import Dataset, ResultFile

pytest.importorskip("matplotlib")

SYMBOLS = {
    "complete": "$U_n$, all",
    "first": "$U_{n,N}$",
    "local": r"$\widehat{U}_{n,N,T}$",
    "incomplete 10": r"$\widetilde{U}_{n,N,B,T}$, B = 10 ",
    "incomplete 100": r"$\widetilde{U}_{n,N,B,T}$, B = 100 ",
    "sampled": r"$\widetilde{U}_B$",
}
PANELS = ("small", "large")
KINDS = ("fig1", "fig2", "fig3", "fig5", "fig6")


def theory(name: str) -> ResultFile:
    """Return the result of an experiment without runs."""
    experiment = make_experiment(name)
    datasets, scales = experiment.summarise({})
    return ResultFile(name, experiment.config, {}, datasets, scales)


def simulated_fig5() -> ResultFile:
    """Return a result as of fig5 with made-up measurements: the theory of fig2, give or take."""
    of_theory = theory("fig2")
    datasets = dict(of_theory.datasets)
    wiggle = np.array([1.05, 0.9, 1.1, 0.97])
    for panel in PANELS:
        for label in ("complete", "local", "incomplete 10", "incomplete 100", "sampled"):
            n_pairs, variance = (datasets[f"{panel}/{label}/{part}"].values for part in ("n_pairs", "variance"))
            measured = variance[:4] * wiggle[: len(variance)]
            where = f"{panel}/{label}/measured"
            datasets[f"{where}/n_pairs"] = Dataset(n_pairs[:4])
            datasets[f"{where}/variance"] = Dataset(measured)
            datasets[f"{where}/standard_error"] = Dataset(0.06 * measured)
        datasets[f"{panel}/expectation"] = Dataset(np.array(0.5))
        datasets[f"{panel}/swor_expectation"] = Dataset(np.array(0.4331))
    config = of_theory.config | {"figure": "fig5", "scheme": "swor", "n_runs": 1500}
    return ResultFile("fig5", config, {}, datasets)


def simulated_fig3(*, at_smallest: float = 6.9) -> ResultFile:
    """Return a result as of fig3 with made-up measurements, of which those at the smallest ε have wide bars."""
    epsilon = np.array([0.00016, 0.004, 0.5])
    curve = {"local": np.array([6.0, 1.4, 1.0]), "repartitioned": np.array([2.2, 1.1, 1.0])}
    datasets = {f"curve/{name}": Dataset(values) for name, values in curve.items()}
    datasets["curve/epsilon"] = Dataset(epsilon)
    datasets["plain/complete/informative"] = Dataset(np.array([23, 926, 5000]))
    for kind, size in (("plain", 1.0), ("conditional", 0.05)):
        for k, (name, values) in enumerate((curve | {"complete": np.ones(3)}).items()):
            measured = values * (1.0 + 0.02 * k)
            if (kind, name) == ("plain", "local"):
                measured[0] = at_smallest
            datasets[f"{kind}/{name}/relative_variance"] = Dataset(measured)
            datasets[f"{kind}/{name}/standard_error"] = Dataset(size * measured * np.array([0.5, 0.06, 0.02]))
    config = {"n": 5000, "m": 50, "n_workers": 10, "n_rounds": 4, "n_runs": 5000}
    return ResultFile("fig3", config, {}, datasets, {"epsilon": epsilon})


def result_of(kind: str) -> ResultFile:
    return {"fig3": simulated_fig3, "fig5": simulated_fig5}[kind]() if kind in ("fig3", "fig5") else theory(kind)


def labelled_lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}


def bars(axes: Any) -> dict[str, Any]:
    return {container.get_label(): container for container in axes.containers}


def starting(found: dict[str, Any], start: str) -> Any:
    (one,) = [each for label, each in found.items() if label.startswith(start)]
    return one


def texts(axes: Any) -> list[str]:
    return [text.get_text().replace("\N{NARROW NO-BREAK SPACE}", "") for text in axes.texts]


def has_line(axes: Any, x: Any, y: Any) -> bool:
    return any(
        np.array_equal(line.get_xdata(), x) and np.array_equal(line.get_ydata(), y)
        for line in axes.get_lines()
        if line.get_linestyle() != "None"
    )


def check_bars(container: Any, x: Any, values: Any, errors: Any) -> None:
    """Check that points are at the values and that their bars reach two standard errors to both sides."""
    points, _, (collection,) = container.lines
    np.testing.assert_allclose(points.get_xdata(), x, rtol=1e-12)
    np.testing.assert_allclose(points.get_ydata(), values, rtol=1e-12)
    ends = np.array([segment[:, 1] for segment in collection.get_segments()])
    np.testing.assert_allclose(ends[:, 0], values - 2.0 * errors, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ends[:, 1], values + 2.0 * errors, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_is_drawn_within_its_edges(kind: str, tmp_path: Any) -> None:
    figure = draw(result_of(kind))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that finds no room only warns
        warnings.filterwarnings("ignore", ".*deprecated")  # an old matplotlib calls a new pyparsing
        save_figure(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    for axes in figure.axes:
        box = axes.get_position()
        assert box.width > 0.3 and box.height > 0.1
    width, height = figure.get_size_inches() * figure.dpi
    for legend in figure.legends:
        extent = legend.get_window_extent()
        assert extent.x0 >= 0 and extent.y0 >= 0 and extent.x1 <= width and extent.y1 <= height


# ---------------------------------------------------------------------------------------------------------------------
# Figure 1


def cells(axes: Any) -> Any:
    """Return the colours of a grid's cells, (m, n, 3 or 4)."""
    (mesh,) = axes.collections
    return mesh.get_array()


def coloured(axes: Any) -> int:
    """Return how many cells are not white."""
    return int(np.count_nonzero((cells(axes)[:, :, :3] < 1.0).any(axis=2)))


def test_pairs_are_coloured_where_they_are_evaluated() -> None:
    result = theory("fig1")
    workers, sampled = result.datasets["worker"].values, result.datasets["sampled"].values
    seen = np.count_nonzero(workers >= 0, axis=0)
    complete, local, incomplete, repartitioned = draw(result).axes
    assert coloured(complete) == seen.size == 96
    assert coloured(local) == np.count_nonzero(workers[0] >= 0)
    assert coloured(repartitioned) == np.count_nonzero(seen)
    for axes, n_distinct in (
        (complete, 96),
        (local, np.count_nonzero(workers[0] >= 0)),
        (incomplete, np.count_nonzero(sampled)),
        (repartitioned, np.count_nonzero(seen)),
    ):
        assert [text for text in texts(axes) if text.startswith(f"{n_distinct} distinct pairs")]
    for axes, counts in ((complete, seen * 0), (local, seen * 0), (incomplete, sampled), (repartitioned, seen)):
        numbers = sorted(int(text) for text in texts(axes) if text.isdigit())
        assert numbers == sorted(counts[counts > 1])
    strong = {tuple(colour) for colour in cells(local).reshape(-1, cells(local).shape[-1]).tolist()}
    in_panel = [tuple(colour) in strong for colour in cells(incomplete).reshape(-1, cells(local).shape[-1]).tolist()]
    assert np.count_nonzero(in_panel) - (96 - coloured(incomplete)) == np.count_nonzero(sampled)


def test_the_first_partition_is_a_row_of_blocks_along_the_diagonal() -> None:
    result = theory("fig1")
    local = draw(result).axes[1]
    image = cells(local)
    expected = np.kron(np.eye(4, dtype=bool), np.ones((2, 3), dtype=bool))
    np.testing.assert_array_equal((image[:, :, :3] < 1.0).any(axis=2), expected)
    for i in range(4):  # one colour for each worker
        block = image[2 * i : 2 * i + 2, 3 * i : 3 * i + 3].reshape(6, -1)
        assert len(np.unique(block, axis=0)) == 1
    assert len(np.unique(image.reshape(96, -1), axis=0)) == 5


# ---------------------------------------------------------------------------------------------------------------------
# Figures 2, 5 and 6


@pytest.mark.parametrize("kind", ["fig2", "fig6"])
def test_variances_in_theory_are_lines(kind: str) -> None:
    result = theory(kind)
    figure = draw(result)
    for panel, axes in zip(PANELS, figure.axes[:2], strict=True):
        found = labelled_lines(axes)
        for name in ("local", "incomplete 10", "incomplete 100", "sampled"):
            line = starting(found, SYMBOLS[name])
            np.testing.assert_array_equal(line.get_xdata(), result.datasets[f"{panel}/{name}/n_pairs"].values)
            np.testing.assert_array_equal(line.get_ydata(), result.datasets[f"{panel}/{name}/variance"].values)
            assert line.get_linestyle() == "-"
        for name, series in (("complete", "complete"), ("first", "local")):
            (x,), (y,) = starting(found, SYMBOLS[name]).get_data()
            assert x == result.datasets[f"{panel}/{series}/n_pairs"].values[0]
            assert y == result.datasets[f"{panel}/{series}/variance"].values[0]
        assert axes.get_xscale() == axes.get_yscale() == "log"
        assert "σ₂²" in axes.get_title(loc="left")
    assert texts(figure.axes[0])[0] == "σ₁² = 1, σ₂² = 0.0009, σ₀² = 1"
    assert texts(figure.axes[1])[0] == "σ₁² = 1, σ₂² = 1, σ₀² = 1"
    assert "pairs" in figure.axes[-1].get_xlabel()
    assert "squared" in figure.axes[0].get_ylabel()
    title = figure.get_suptitle().replace("\N{NARROW NO-BREAK SPACE}", "")
    assert title.endswith("n = 100000, m = 200, N = 100")
    assert {"fig2": "prop-SWOR", "fig6": "prop-SWR"}[kind] in title


def test_the_printed_formula_is_dashed_and_its_error_shown() -> None:
    result = theory("fig6")
    axes = draw(result).axes
    for panel, upper, lower in zip(PANELS, axes[:2], axes[2:], strict=True):
        for b in (10, 100):
            n_pairs, printed = (
                result.datasets[f"{panel}/printed {b}/{part}"].values for part in ("n_pairs", "variance")
            )
            (dashed,) = [line for line in upper.get_lines() if np.array_equal(line.get_ydata(), printed)]
            np.testing.assert_array_equal(dashed.get_xdata(), n_pairs)
            assert dashed.get_linestyle() == "--"
            corrected = result.datasets[f"{panel}/incomplete {b}/variance"].values
            assert has_line(lower, n_pairs, 100.0 * (printed / corrected - 1.0))


def test_measured_variances_are_points_with_bars_beside_the_theory() -> None:
    result = simulated_fig5()
    figure = draw(result)
    for panel, axes in zip(PANELS, figure.axes, strict=True):
        found = bars(axes)
        parts = {"first": slice(0, 1), "local": slice(1, None)}
        for name, symbol in SYMBOLS.items():
            start = f"{panel}/{'local' if name == 'first' else name}"
            columns = (result.datasets[f"{start}/measured/{part}"].values for part in ("n_pairs", "variance"))
            x, values = (column[parts.get(name, slice(None))] for column in columns)
            check_bars(starting(found, symbol), x, values, 0.06 * values)
            if name not in ("complete", "first"):
                assert has_line(axes, *(result.datasets[f"{start}/{part}"].values for part in ("n_pairs", "variance")))
    (legend,) = figure.legends
    note = legend.get_title().get_text().replace("\N{NARROW NO-BREAK SPACE}", "")
    assert "1500 runs" in note
    assert "± 2 standard errors" in note
    assert "mean 0.866 U" in note
    assert len(legend.get_texts()) == 6


def test_a_statistic_has_the_same_colour_in_all_figures() -> None:
    seen: dict[str, set[str]] = {}
    for kind in ("fig2", "fig5", "fig6"):
        axes = draw(result_of(kind)).axes[0]
        for name, symbol in SYMBOLS.items():
            artists = labelled_lines(axes) if kind != "fig5" else {k: c.lines[0] for k, c in bars(axes).items()}
            seen.setdefault(name, set()).add(starting(artists, symbol).get_color())
    for label, container in bars(draw(simulated_fig3()).axes[0]).items():
        name = {"$U_n$": "complete", "$U_{n,N}$": "first"}.get(label.split(", T")[0], "local")
        seen[name].add(container.lines[0].get_color())
    assert all(len(colours) == 1 for colours in seen.values())
    assert len(set.union(*seen.values())) == len(SYMBOLS)


# ---------------------------------------------------------------------------------------------------------------------
# Figure 3

RELATIVE = {"complete": "$U_n$", "local": "$U_{n,N}$, T = 1", "repartitioned": r"$\widehat{U}_{n,N,T}$, T = 4"}


def test_relative_variances_are_points_with_bars_beside_exact_curves() -> None:
    result = simulated_fig3()
    epsilon = result.scales["epsilon"]
    figure = draw(result)
    for kind, axes in zip(("plain", "conditional"), figure.axes, strict=True):
        places = []
        for name, label in RELATIVE.items():
            values = result.datasets[f"{kind}/{name}/relative_variance"].values
            errors = result.datasets[f"{kind}/{name}/standard_error"].values
            container = bars(axes)[label]
            places.append(container.lines[0].get_xdata() / epsilon)
            np.testing.assert_allclose(places[-1], places[-1][0])  # moved alike at every ε, and little
            assert 0.8 < places[-1][0] < 1.25
            check_bars(container, places[-1] * epsilon, values, errors)
            if name != "complete":
                assert has_line(axes, epsilon, result.datasets[f"curve/{name}"].values)
            low, high = axes.get_ylim()
            assert np.all(values + BAR_STANDARD_ERRORS * errors < high)
            assert np.all(values > low)
        assert len({float(place[0]) for place in places}) == 3
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.00016", "0.004", "0.5"]
    assert {"23", "926", "5000", "runs with a misordered pair"} <= set(texts(figure.axes[0]))
    assert "± 2 standard errors" in figure.legends[0].get_title().get_text()


@pytest.mark.parametrize("at_smallest", [6.9, 0.0, 60.0])
def test_what_leaves_the_axis_ends_in_an_arrow(at_smallest: float) -> None:
    result = simulated_fig3(at_smallest=at_smallest)
    plain, conditional = draw(result).axes
    low, high = plain.get_ylim()
    assert high > 2.0 * at_smallest
    colour = bars(plain)[RELATIVE["local"]].lines[0].get_color()
    arrows = {line.get_color(): line for line in plain.get_lines() if line.get_marker() == "v"}
    x, y = (np.asarray(column) for column in arrows[colour].get_data())
    np.testing.assert_array_equal(np.concatenate([x, y]), [0.00016, low])
    assert len(arrows) == 3
    assert not [line for line in conditional.get_lines() if line.get_marker() == "v"]


# ---------------------------------------------------------------------------------------------------------------------
# Refusals


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    check_drawable()
    incomplete = theory("fig2")
    del incomplete.datasets["small/local/variance"]
    with pytest.raises(UserError, match="holds no 'small/local/variance'"):
        draw(incomplete)
    result = theory("fig2")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(UserError, match=r"pip install 'mpi_ustat\[plot\]'"):
        check_drawable()
    with pytest.raises(UserError, match=r"pip install 'mpi_ustat\[plot\]'"):
        draw(result)
