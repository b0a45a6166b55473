"""Pictures and texts of intervals, tests, differences and groups show what the file has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_ustat.app.info_command import describe
from mpi_ustat.plots.pictures import draw, save_figure
from mpi_ustat.storage.ranked_groups import ranked_groups
from mpi_ustat.storage.results import Dataset, ResultFile

pytest.importorskip("matplotlib")

CONFIG = {"kernel": "auc", "complete": True, "confidence": 0.9}


def single(**more: Any) -> ResultFile:
    datasets = {
        "estimate": Dataset(np.array(0.75), unit="1"),
        "interval": Dataset(np.array([0.7, 0.82])),
        "test/z": Dataset(np.array(4.0)),
        "test/p": Dataset(np.array(6e-5)),
        "test/null": Dataset(np.array(0.5)),
    }
    return ResultFile("estimate", dict(CONFIG), datasets=datasets | more)


def grouped(names: Any, values: Any, pairs: Any = None) -> ResultFile:
    n = len(values)
    found = {
        "groups/value": Dataset(np.array(values), ("group",)),
        "groups/points": Dataset(np.full((n, 2), 3.0), ("group", "sample")),
        "groups/pairs": Dataset(np.full(n, 9.0) if pairs is None else np.array(pairs), ("group",)),
    }
    result = single(**found)
    result.scales["group"] = np.array(names)
    return result


def difference(first: int, second: int, value: float, p: float, margin: float = 0.0) -> dict[str, Any]:
    interval = {"lower": value - 0.02, "upper": value + 0.03, "method": "wald", "note": None}
    test = {"null": -margin, "z": 1.5, "p": p, "one_sided": bool(margin)}
    return {"first": first, "second": second, "value": value, "stderr": 0.01, "interval": interval, "test": test}


def several(margin: float = 0.0) -> ResultFile:
    datasets = {
        "estimate": Dataset(np.array([0.7, 0.6, 0.5]), ("column",), "1"),
        "interval": Dataset(np.array([[0.65, 0.74], [0.55, 0.66], [np.nan, np.nan]])),
        "test/z": Dataset(np.array([5.0, 3.0, np.nan])),
        "test/p": Dataset(np.array([1e-9, 0.003, np.nan])),
        "test/null": Dataset(np.array(0.5)),
    }
    paired = [difference(0, 1, 0.1, 0.02, margin), difference(0, 2, 0.2, 0.0, margin), difference(1, 2, 0.1, 1, margin)]
    omnibus = {"statistic": 12.5, "rank": 2, "p": 0.00193}
    config = CONFIG | {"columns": ["a", "b$c$", "d"], "differences": paired, "omnibus": omnibus}
    return ResultFile("estimate", config, datasets=datasets)


def texts(axes: Any) -> list[str]:
    return [each.get_text() for each in axes.texts]


def bars(axes: Any) -> list[list[float]]:
    """The ends of the horizontal error bars, from the top down."""
    return [segment[:, 0].tolist() for each in axes.collections for segment in each.get_segments()]


def dashed(axes: Any) -> list[float]:
    return [line.get_xdata()[0] for line in axes.get_lines() if line.get_linestyle() == "--" and len(line.get_xdata())]


def test_a_single_value_has_its_interval_and_null_value() -> None:
    (axes,) = draw(single()).axes
    (bar,) = bars(axes)
    assert bar == pytest.approx([0.7, 0.82], rel=1e-15)
    assert dashed(axes) == [0.5]
    assert "90 % interval" in axes.get_xlabel()
    assert any("p = 6e-05" in text for text in texts(axes))


@pytest.mark.parametrize(("margin", "null"), [(0.0, 0.0), (0.02, -0.02)])
def test_several_values_stand_over_their_differences(tmp_path: Path, margin: float, null: float) -> None:
    figure = draw(several(margin))
    values, differences = figure.axes
    assert bars(values) == [pytest.approx([0.65, 0.74]), pytest.approx([0.55, 0.66])]  # the third has none
    assert dashed(values) == [0.5]
    assert [each.get_text() for each in values.get_yticklabels()] == ["a", r"b\$c\$", "d"]  # no formula
    assert bars(differences) == [pytest.approx(ends) for ends in ([0.08, 0.13], [0.18, 0.23], [0.08, 0.13])]
    assert dashed(differences) == [null]
    told = "\n".join(texts(differences))
    for part in ("p = 0.02", "p < 1e-300", "all equal: χ² = 12.5, 2 degrees of freedom, p = 0.00193"):
        assert part in told
    assert ("one-sided" in differences.get_xlabel()) == bool(margin)
    save_figure(figure, tmp_path / "f.png")


def test_of_very_many_differences_the_surest_are_drawn() -> None:
    result = several()
    result.config["differences"] = [difference(0, 1, 0.1, 1 / (1 + j)) for j in range(40)]
    axes = draw(result).axes[1]
    assert len(bars(axes)) == 30
    assert "30 of 40" in axes.get_title(loc="left")
    assert not any("p = 1" in text.split("   ") for text in texts(axes))


def test_few_groups_are_all_named() -> None:
    named, spread = draw(grouped(["u", "v", "w"], [0.9, np.nan, 0.4])).axes
    assert [each.get_text() for each in named.get_yticklabels()] == ["u (6)", "w (6)"]
    assert "1 group without a pair left out" in texts(named)[0]
    assert "mean of groups, 0.75" in texts(named)[0]
    assert "against 0.5: p = 6e-05" in texts(named)[0]
    assert [line.get_xdata()[0] for line in spread.get_lines()] == [0.75]


def test_of_many_groups_ten_at_either_end_are_named() -> None:
    rng = np.random.default_rng(3)
    values = rng.permutation(100) / 100.0
    top, whole, bottom, _ = draw(grouped(np.arange(100.0), values)).axes
    order = np.argsort(values)
    assert [each.get_text() for each in bottom.get_yticklabels()] == [f"{j} (6)" for j in order[:10]]
    assert [each.get_text() for each in top.get_yticklabels()] == [f"{j} (6)" for j in order[::-1][:10]]
    np.testing.assert_array_equal(whole.get_lines()[0].get_xdata(), np.sort(values))


def test_groups_of_equal_values_are_named_by_their_pairs() -> None:
    pairs = np.arange(1.0, 31.0)
    (groups,) = ranked_groups(grouped(np.arange(30.0), np.ones(30), pairs))
    assert groups.highest(3).tolist() == groups.lowest(3).tolist() == [29, 28, 27]
    top = draw(grouped(np.arange(30.0), np.ones(30), pairs)).axes[0]
    assert any(text.startswith("30 groups have 1;") for text in texts(top))


def test_a_million_groups_are_drawn_by_few_of_them(tmp_path: Path) -> None:
    n = 10**6
    result = grouped(np.arange(float(n)), np.random.default_rng(1).random(n))
    figure = draw(result)
    save_figure(figure, tmp_path / "f.png")
    assert max(len(line.get_xdata()) for axes in figure.axes for line in axes.get_lines()) <= 2000


def test_no_group_has_a_value() -> None:
    draw(grouped(["u"], [np.nan]))


def test_groups_of_several_columns_stand_below_the_forest() -> None:
    result = several()
    for name, dataset in grouped(["u", "v"], [[0.1, 0.2, 0.3], [0.4, 0.5, np.nan]]).datasets.items():
        if name.startswith("groups/"):
            result.datasets[name] = Dataset(dataset.values)
    result.scales["group"] = np.array(["u", "v"])
    figure = draw(result)
    assert [axes.get_title(loc="left") for axes in figure.axes[2::2]] == ["a", r"b\$c\$", "d"]


def test_info_tells_tests_differences_and_omnibus() -> None:
    text = describe(several(0.02))
    for line in (
        "90 % interval and test",
        "a [0.65, 0.74] that it is 0.5: z = 5, p = 1e-09",
        "d none no test",
        "a - d 0.2 ± 0.01 [0.18, 0.23] that it is at most -0.02: z = 1.5, p < 1e-300",
    ):
        assert line in [" ".join(each.split()) for each in text.split("\n")]
    assert "chi-squared = 12.5 (2 degrees)" in text
    assert "'first'" not in text


def test_info_tells_points_and_the_ends_of_groups() -> None:
    result = grouped([f"g{j:02}" for j in range(13)], [np.nan, *(np.arange(12) / 12)])
    more = {
        "total_weight": Dataset(np.array(108.0)),
        "clusters/n": Dataset(np.array(7)),
        "clusters/n_with_points_of": Dataset(np.array([6, 5])),
        "influence/x": Dataset(np.zeros(39)),
    }
    result.datasets.update(more)
    text = describe(result)
    before, _, groups = text.partition("groups: 12; 1 more without a pair, left out\n")
    told = [line.split()[-6] for line in groups.split("\n\n")[0].split("\n")]
    assert told == [f"g{j:02}" for j in (1, 2, 3, 4, 5, 12, 11, 10, 9, 8)]
    for part in ("108", "7 (with points of each sample: 6, 5)", "of every row: 39 of x"):
        assert part in before
