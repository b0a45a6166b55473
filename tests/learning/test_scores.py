"""Learning while rows stay and scores travel: steps, optima, resumption, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import h5py
import numpy as np
import pytest
import threadpoolctl
from commands import refusal, result_of, write_csv
from conftest import Mpirun
from numpy.typing import NDArray
from scipy.optimize import minimize
from sharding import SPREADS, shards

from mpi_ustat import Fit, SerialComm, UserError, learn, learn_samples
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.losses import LOSSES, make_loss
from mpi_ustat.learning.objectives import Mahalanobis, consecutive_pairings
from mpi_ustat.learning.optimizers import begun
from mpi_ustat.learning.training import set_up

Floats = NDArray[np.float64]
Here = Callable[..., CompletedProcess[str]]

COMMAND = ("learn",)


def data(sizes: tuple[int, ...] = (37, 58), d: int = 3) -> list[Floats]:
    """Return samples, the first of which lies highest."""
    generator = np.random.default_rng([*sizes, d])
    return [generator.normal(size=(n, d)) - 0.6 * k for k, n in enumerate(sizes)]


def objective(
    name: str, samples: list[Floats], l2: float, pairings: list[tuple[int, int]]
) -> Callable[[Floats], tuple[float, Floats]]:
    """Return the loss over all pairs and its gradient, from the whole matrix of pairs."""
    phi = make_loss(name)

    def of(w: Floats) -> tuple[float, Floats]:
        loss, gradient = l2 * float(w @ w), 2.0 * l2 * w
        for a, b in pairings:
            u = (samples[a] @ w)[:, None] - (samples[b] @ w)[None, :]
            loss += phi.values(u).mean()
            slopes = phi.slope_unit * phi.slopes(u.copy()) / u.size
            gradient = gradient - slopes.sum(axis=1) @ samples[a] + slopes.sum(axis=0) @ samples[b]
        return loss, gradient

    return of


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_of_all_points_is_along_the_gradient_over_all_pairs(comm: Any, loss: str, spread: str) -> None:
    samples = data()
    start = learn(
        SerialComm(), *samples, loss=loss, exchange="scores", batch_points=None, iterations=1, seed=5, learning_rate=0.0
    ).parameters
    fit = learn(
        comm,
        *shards(comm, samples, spread),
        loss=loss,
        l2=0.3,
        exchange="scores",
        batch_points=None,
        iterations=1,
        seed=5,
        learning_rate=0.5,
        n_workers=3,
    )
    _, gradient = objective(loss, samples, 0.3, [(0, 1)])(start)
    assert fit.parameters == pytest.approx(start - 0.5 * gradient, rel=1e-13)


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "hinge"])
def test_lbfgs_finds_the_optimum_of_scipy_on_one_process(comm: Any, loss: str) -> None:
    samples = data((30, 41, 25))[::-1]
    pairings = consecutive_pairings(3)
    fit = learn_samples(
        comm,
        shards(comm, samples),
        pairings=pairings,
        loss=loss,
        l2=1e-3,
        exchange="scores",
        batch_points=None,
        optimizer="lbfgs",
        tolerance=2e-8,
        init="zeros",
        n_workers=4,
        seed=1,
    )
    best = minimize(
        objective(loss, samples, 1e-3, pairings),
        np.zeros(3),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-12, "ftol": 0.0},
    )
    assert fit.optimum is not None and fit.optimum.reached and fit.optimum.largest <= 2e-8
    assert fit.parameters == pytest.approx(best.x, abs=1e-7)
    assert objective(loss, samples, 1e-3, pairings)(fit.parameters)[0] - best.fun < 1e-12


OPTIONS: list[dict[str, Any]] = [
    {"loss": "hinge", "batch_points": 4},
    {"loss": "squared-hinge", "batch_points": None},
    {"loss": "logistic", "batch_points": 3, "momentum": 0.5},
    {"loss": "squared-hinge", "batch_points": None, "optimizer": "lbfgs", "l2": 0.01},
    {"loss": "hinge", "batch_points": None, "weights": True, "groups": True},
    {"loss": "squared-hinge", "batch_points": 4, "weights": True},
    {"loss": "squared-hinge", "batch_points": None, "optimizer": "lbfgs", "weights": True, "groups": True},
]


def said(samples: list[Floats]) -> dict[str, list[NDArray[Any]]]:
    generator = np.random.default_rng(0)
    return {
        "weights": [generator.exponential(size=len(each)) for each in samples],
        "groups": [generator.choice(["a", "b", "c"], len(each)) for each in samples],
    }


def learnt(comm: Any, samples: list[Floats], options: dict[str, Any], spread: str = "even", **more: Any) -> Fit:
    own = {name: shards(comm, each, spread) for name, each in said(samples).items() if name in options}
    given = {"exchange": "scores", "n_workers": 5, "seed": 3, "iterations": 12, "eval_every": 4}
    return learn(comm, *shards(comm, samples, spread), **(given | options | own | more))


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_bits_at_every_number_of_ranks(comm: Any, options: dict[str, Any], spread: str) -> None:
    samples = data((31, 3))  # less points than workers
    whole, found = learnt(SerialComm(), samples, options), learnt(comm, samples, options, spread)
    assert found.parameters.tobytes() == whole.parameters.tobytes()
    for name in ("iteration", "train_loss", "train_auc"):
        assert found.history[name].tobytes() == whole.history[name].tobytes(), name
    assert found.optimum == whole.optimum


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
@pytest.mark.parametrize("at", [1, 4, 6])
def test_what_goes_on_from_a_snapshot_ends_where_the_whole_run_does(
    comm: Any, options: dict[str, Any], at: int
) -> None:
    samples = data()
    config = LearnConfig(exchange="scores", n_workers=4, seed=3, iterations=9, eval_every=3, **options)
    whole = begun(set_up(comm, shards(comm, samples), config))
    list(whole.run())
    first = begun(set_up(comm, shards(comm, samples), config))
    list(first.run(at))
    second = begun(set_up(comm, shards(comm, samples), config))
    second.restore(first.snapshot())
    assert second.state.iteration == at
    list(second.run())
    for mine, theirs in zip(second.snapshot().items(), whole.snapshot().items(), strict=True):
        if "seconds" not in mine[0] and "bytes" not in mine[0] and mine[0] != "counters":
            assert mine[0] == theirs[0] and np.array_equal(mine[1], theirs[1], equal_nan=True), mine[0]


def test_a_stop_leaves_what_goes_on(comm: Any) -> None:
    samples, asked = data(), iter([False] * 5 + [True] * 100)
    config = LearnConfig(
        exchange="scores",
        n_workers=2,
        seed=3,
        iterations=50,
        batch_points=None,
        optimizer="lbfgs",
        loss="squared-hinge",
        l2=0.01,
    )
    whole = begun(set_up(comm, shards(comm, samples), config))
    list(whole.run())
    first = begun(set_up(comm, shards(comm, samples), config), lambda: next(asked))
    list(first.run())
    assert first.state.stopped and 0 < first.state.iteration < whole.state.iteration
    second = begun(set_up(comm, shards(comm, samples), config))
    second.restore(first.snapshot())
    list(second.run())
    assert second.state.parameters.tobytes() == whole.state.parameters.tobytes()
    assert second.optimum == whole.optimum


def test_the_optimiser_s_blas_has_one_thread_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(of: str) -> list[int]:
        return [each["num_threads"] for each in threadpoolctl.threadpool_info() if f"/{of}.libs/" in each["filepath"]]

    found: list[list[int]] = []

    def watched(*given: Any, **options: Any) -> Any:
        found.append([*threads("scipy"), *threads("numpy")])
        return minimize(*given, **options)

    monkeypatch.setattr("scipy.optimize.minimize", watched)
    with threadpoolctl.threadpool_limits(2):
        before = threads("scipy"), threads("numpy")
        if before != ([2], [2]):
            pytest.skip("SciPy and NumPy don't bring a BLAS of threads each")
        learn(SerialComm(), *data(), exchange="scores", batch_points=None, optimizer="lbfgs", l2=0.1, iterations=3)
        assert found == [[1, 2]]
        assert (threads("scipy"), threads("numpy")) == before


def test_rows_do_not_travel(comm: Any) -> None:
    wide = data((200, 200), d=50)
    fit = learn(
        comm, *shards(comm, wide), exchange="scores", batch_points=None, iterations=10, n_workers=comm.size, seed=1
    )
    assert fit.history["bytes_moved"][-1] == 10 * 8 * 400 * (comm.size - 1)
    assert fit.history["rows_moved"][-1] == 0


def test_columns_far_from_zero_do_not_matter() -> None:
    samples = [np.round(each, 2) for each in data()]
    options: dict[str, Any] = {"exchange": "scores", "batch_points": None, "iterations": 20, "seed": 2, "loss": "hinge"}
    here = learn(SerialComm(), *samples, **options)
    far = learn(SerialComm(), *(each + 1e6 for each in samples), **options)
    assert far.parameters == pytest.approx(here.parameters, rel=1e-7)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"exchange": "scores", "objective": Mahalanobis()}, "has no loss phi"),
        ({"optimizer": "lbfgs"}, 'needs all pairs: use exchange="scores"'),
        ({"exchange": "scores", "optimizer": "lbfgs"}, "needs all points in every step"),
        ({"exchange": "scores", "batch_points": 0}, "points of each class a worker and step is 0"),
        ({"exchange": "scores", "tolerance": 0.0}, "tolerance is 0.0: give a positive number"),
        ({"exchange": "points"}, "exchange is 'points': use one of rows, scores"),
        ({"weights": ([1.0] * 37, [1.0] * 58)}, "weights and groups of points need the exchange of scores"),
        ({"exchange": "scores", "groups": ([1] * 37, [1] * 58)}, "groups need all points in every step"),
        ({"exchange": "scores", "weights": ([1.0] * 37, [1.0] * 3)}, "give one for each of its 58 points"),
    ],
)
def test_what_can_not_be_meant_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        learn(SerialComm(), *data(), **options)


class Cubic:
    """Scores w·x + v·x³, of a user."""

    def __init__(self) -> None:
        self.phi = make_loss("squared-hinge")

    def n_parameters(self, n_columns: int) -> int:
        return 2 * n_columns

    def pairs(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
        raise AssertionError("no pairs are looked at")

    def scores(self, parameters: Floats, rows: Floats) -> Floats:
        return np.einsum("ij,j->i", np.hstack([rows, rows**3]), parameters)

    def losses_of_scores(self, positive: Floats, negative: Floats) -> Floats:
        return self.phi.values(positive - negative)

    def score_gradient(self, parameters: Floats, rows: Floats, coefficients: Floats) -> Floats:
        return np.asarray(coefficients @ np.hstack([rows, rows**3]))


def test_an_objective_of_a_user(comm: Any) -> None:
    samples = data()
    options: dict[str, Any] = {"exchange": "scores", "batch_points": None, "optimizer": "lbfgs", "l2": 0.01, "seed": 1}
    fit = learn(comm, *shards(comm, samples), Cubic(), **options)
    both = learn(SerialComm(), *(np.hstack([each, each**3]) for each in samples), loss="squared-hinge", **options)
    assert fit.parameters == pytest.approx(both.parameters, abs=1e-5)


def test_a_user_s_error_on_one_rank_is_told_on_all(comm: Any) -> None:
    class Failing(Cubic):
        def scores(self, parameters: Floats, rows: Floats) -> Floats:
            if len(rows) and comm.rank == comm.size - 1:
                raise ValueError("no")
            return super().scores(parameters, rows)

    with pytest.raises(UserError, match="no"):
        learn(comm, *shards(comm, data()), Failing(), exchange="scores", batch_points=None)


def test_the_command_line(here: Here, tmp_path: Path) -> None:
    samples = data((60, 90))
    rows = [(*row, k == 0) for k, each in enumerate(samples) for row in each.tolist()]
    file, output = write_csv(tmp_path / "d.csv", [(*row, int(y)) for *row, y in rows], "a,b,c,y"), tmp_path / "out.h5"
    options = ("--label", "y", "--positive", "1", "--exchange", "scores", "--test-fraction", 0, "--seed", 1)
    lbfgs = ("--batch-points", "all", "--optimizer", "lbfgs", "--loss", "squared-hinge")
    found = result_of(here(file, *options, *lbfgs, "--output", output, "--json"))
    assert found["optimum"]["reached"] and found["exchange"] == "scores"
    best = minimize(
        objective("squared-hinge", samples, 0.0, [(0, 1)]),
        np.zeros(3),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-12, "ftol": 0.0},
    )
    assert found["weights"] == pytest.approx(best.x, abs=1e-5)
    with h5py.File(output) as stream:
        assert stream["optimum/reached"][()] and stream["optimum/largest"][()] <= 1e-6
    for command in ("info", "plot"):
        assert here(output, command=(command,)).returncode == 0
    drawn = result_of(here(file, *options, "--batch-points", 7, "--iterations", 20, "--json"))
    assert drawn["batch_points"] == 7 and drawn["optimum"] is None
    assert "--batch-points belongs to --exchange scores" in refusal(here(file, *options[:4], "--batch-points", 5))
    assert "--optimizer" in refusal(here(file, *options[:4], "--optimizer", "lbfgs"))


@pytest.mark.parametrize("more", [("--optimizer", "lbfgs"), ()], ids=["lbfgs", "sgd"])
def test_resuming_on_the_command_line(here: Here, tmp_path: Path, more: tuple[str, ...]) -> None:
    rows = [(*row, int(k == 0)) for k, each in enumerate(data((60, 90))) for row in each.tolist()]
    file = write_csv(tmp_path / "d.csv", rows, "a,b,c,y")
    options = (
        file,
        "--label",
        "y",
        "--positive",
        "1",
        "--exchange",
        "scores",
        "--batch-points",
        "all",
        "--seed",
        1,
        "--loss",
        "squared-hinge",
        "--l2",
        0.01,
        *more,
    )
    kept = ("--checkpoint", tmp_path / "c.h5", "--checkpoint-every", 2)
    whole = result_of(here(*options, "--iterations", 9, "--json"))
    assert here(*options, *kept, "--iterations", 4).returncode == 0
    resumed = result_of(here(*options, *kept, "--iterations", 9, "--resume", "--json"))
    for name in ("weights", "train_loss", "iterations", "optimum"):
        assert resumed[name] == whole[name], name


def test_weights_and_groups_are_columns_on_the_command_line(here: Here, mpirun: Mpirun, tmp_path: Path) -> None:
    samples = data((60, 90))
    about = said(samples)
    lines = [
        (*row, int(k == 0), w, g)
        for k, rows in enumerate(samples)
        for row, w, g in zip(rows.tolist(), about["weights"][k].tolist(), about["groups"][k].tolist(), strict=True)
    ]
    file = write_csv(tmp_path / "d.csv", lines, "a,b,c,y,w,q")
    options = (file, "--label", "y", "--positive", "1", "--exchange", "scores", "--batch-points", "all", "--seed", 1)
    options = (*options, "--optimizer", "lbfgs", "--loss", "squared-hinge", "--weights", "w", "--group", "q")
    found = result_of(here(*options, "--test-fraction", 0, "--init", "zeros", "--json"))
    best = learn(SerialComm(), *samples, loss="squared-hinge", exchange="scores", batch_points=None, optimizer="lbfgs",
                 init="zeros", n_workers=1, **about)  # fmt: skip
    assert found["columns"] == ["a", "b", "c"]
    assert found["weights"] == pytest.approx(best.parameters, rel=1e-9)
    # Training points keep what is said of them when others are set apart.
    apart_options = (*options, "--test-fraction", 0.3, "--workers", 4, "--json")
    apart = [result_of(here(*apart_options)), result_of(mpirun(3, "learn", *apart_options))]
    assert apart[0]["weights"] == apart[1]["weights"] and apart[0]["train_loss"] == apart[1]["train_loss"]
    assert apart[0]["weights"] != pytest.approx(found["weights"], rel=1e-3)
    refused = refusal(here(*options[:5], "--weights", "w", "--group", "q"))
    assert refused.startswith("weights and groups of points need the exchange of scores: use --exchange scores")
