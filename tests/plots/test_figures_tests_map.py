"""The picture of what a second of a test buys shows what its file holds."""

from __future__ import annotations

import numpy as np
import pytest

from mpi_ustat.storage.results import Dataset, ResultFile

pytest.importorskip("matplotlib")

from mpi_ustat.plots.pictures import draw

WORKERS, ROUNDS = np.array([0, 0, 33, 33, 33]), np.array([0, 0, 4, 1, 2])
SECONDS, POWER = (
    np.array([0.03, 0.01, 0.009, 0.003, 0.005]),
    np.array([[0.9, 0.5, 0.6, 0.3, 0.4], [0.8, 0.2, 0, 1, 0.5]]),
)


def test_each_number_of_workers_has_a_line_in_the_order_of_seconds() -> None:
    of = ("design",)
    datasets = {
        "n_workers": Dataset(WORKERS, of),
        "n_rounds": Dataset(ROUNDS, of),
        "points": Dataset(np.array([500, 100, 500, 500, 500]), of),
        "seconds": Dataset(SECONDS, of, "s"),
        "power": Dataset(POWER, ("alternative", "design"), "1"),
    }
    config = {"alternatives": ["shift", "scale"], "n_sets": 100, "level": 0.05, "kernel": "energy", "n_points": 500}
    panels = draw(ResultFile("tests-map", config, {}, datasets, {})).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["shift", "scale"]
    for axes, power in zip(panels, POWER, strict=True):
        (complete, *_), (by_rounds, *_) = (container.lines for container in axes.containers)
        for line, order in ((complete, [1, 0]), (by_rounds, [3, 4, 2])):
            assert line.get_xdata() == pytest.approx(1000 * SECONDS[order])
            assert line.get_ydata() == pytest.approx(100 * power[order])
        assert [text.get_text() for text in axes.texts if text.get_text().isdigit()] == ["100", "500", "1", "2", "4"]
        bars = axes.containers[0].lines[2][0].get_segments()
        assert np.ptp(bars[1][:, 1]) == pytest.approx(200 * np.sqrt(power[0] * (1 - power[0]) / 100))
