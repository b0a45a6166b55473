"""Losses: one class each, whose parts must all be there, and which go by name wherever losses do."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import h5py
import numpy as np
import pytest
from commands import write_csv
from numpy.typing import NDArray

import mpi_ustat
from mpi_ustat import SerialComm, learn
from mpi_ustat.learning.losses import LOSSES, make_loss
from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.learning.objectives import LinearRanking

Floats = NDArray[np.float64]
Here = Callable[..., CompletedProcess[str]]

COMMAND = ("learn",)


class Huberised(Loss):
    """(c - u)²/2 between c - 1 and c, beyond that the tangent: a toy, with all that a loss needs."""

    name = "huberised"

    def values(self, u: Floats) -> Floats:
        short = np.maximum(self.margin - u, 0.0)
        return np.where(short < 1.0, short**2 / 2.0, short - 0.5)

    def slopes(self, u: Floats) -> Floats:
        return np.clip(self.margin - u, 0.0, 1.0)


@pytest.fixture
def huberised(monkeypatch: pytest.MonkeyPatch) -> type[Loss]:
    monkeypatch.setitem(LOSSES, Huberised.name, Huberised)
    return Huberised


def sums_by_pairs(loss: Loss, s: Floats, t: Floats) -> tuple[float, Floats, Floats]:
    u = s[:, None] - t[None, :]
    slopes = loss.slope_unit * np.array([loss.slopes(row.copy()) for row in u])
    return float(loss.values(u).sum()), slopes.sum(axis=1), slopes.sum(axis=0)


@pytest.mark.parametrize("kind", [*LOSSES.values(), Huberised])
@pytest.mark.parametrize("sizes", [(1, 1), (7, 300), (140, 131)])
def test_sums_over_all_pairs(kind: type[Loss], sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sizes)
    loss = kind(0.75)
    for decimals in (0, 12):
        s, t = (np.round(rng.normal(size=size), decimals) for size in sizes)
        total, a, b = sums_by_pairs(loss, s, t)
        found = loss.sums(s, t)
        assert found[0] == pytest.approx(total, rel=1e-12) and loss.total(s, t) == pytest.approx(total, rel=1e-12)
        assert found[1] == pytest.approx(a, rel=1e-11) and found[2] == pytest.approx(b, rel=1e-11)


@pytest.mark.parametrize("kind", [*LOSSES.values(), Huberised])
def test_slopes_are_those_of_the_values(kind: type[Loss]) -> None:
    loss, u = kind(), np.array([-40.0, -3.3, -0.2, 0.1, 0.7, 1.4, 30.0])  # no kink among them
    step = 1e-6
    slopes = (loss.values(u - step) - loss.values(u + step)) / (2 * step)
    assert loss.slope_unit * loss.slopes(u.copy()) == pytest.approx(slopes, abs=1e-6)


@pytest.mark.parametrize("part", ["values", "slopes"])
def test_a_loss_without_a_part_is_an_error_that_names_it(part: str) -> None:
    parts = {name: getattr(Huberised, name) for name in ("name", "values", "slopes") if name != part}
    with pytest.raises(TypeError, match=part):
        type("Half", (Loss,), parts)()


def test_an_added_loss_goes_all_the_way(huberised: type[Loss], here: Here, tmp_path: Path) -> None:
    """Through the library and the command line to the file, and its plot; as itself, to the same bits as by name."""
    rng = np.random.default_rng(4)
    x, z = rng.normal(0.5, 1.0, size=(40, 2)), rng.normal(size=(30, 2))
    options = {"n_workers": 4, "iterations": 30, "batch_pairs": 20, "seed": 3}
    by_name = learn(SerialComm(), x, z, loss="huberised", **options)
    itself = learn(SerialComm(), x, z, LinearRanking(Huberised()), **options)
    assert by_name.parameters.tobytes() == itself.parameters.tobytes()
    scores = x @ by_name.parameters, z @ by_name.parameters
    expected = sums_by_pairs(Huberised(), *scores)[0] / (len(x) * len(z))
    assert by_name.history["train_loss"][-1] == pytest.approx(expected, rel=0.2)  # of sampled pairs
    data = write_csv(
        tmp_path / "d.csv", [*((*row, 1) for row in x.tolist()), *((*row, 0) for row in z.tolist())], "a,b,y"
    )
    file = tmp_path / "out.h5"
    done = here(data, "--label", "y", "--loss", "huberised", "--iterations", 9, "--seed", 1, "--output", file, "--json")
    assert done.returncode == 0 and np.isfinite(json.loads(done.stdout)["weights"]).all()
    with h5py.File(file) as stream:
        assert "huberised" in str(dict(stream.attrs))
    for command in ("info", "plot"):
        assert here(file, command=(command,)).returncode == 0
    assert "huberised" in here(file, command=("info",)).stdout


def test_what_is_no_loss_is_refused() -> None:
    with pytest.raises(
        mpi_ustat.UserError, match="there is no loss 'huber': use one of hinge, squared-hinge, logistic"
    ):
        make_loss("huber")


def test_no_module_but_its_own_knows_a_loss_by_name() -> None:
    root = Path(mpi_ustat.__file__).parent
    strays = [
        f"{path.relative_to(root)}, line {node.lineno}"
        for path in sorted(root.rglob("*.py"))
        if path.parent.name != "losses"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in LOSSES
    ]
    assert strays == []
