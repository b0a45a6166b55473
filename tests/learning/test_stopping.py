"""Early stopping, and the parameters that are kept, against what a plain descent's validation losses say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shards

from mpi_ustat import SerialComm, UserError, learn
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.fit import Fit
from mpi_ustat.learning.optimizers import begun
from mpi_ustat.learning.training import set_up

Array = NDArray[np.float64]

OPTIONS: dict[str, Any] = {
    "n_workers": 3,
    "batch_pairs": 4,
    "repartition_every": 7,
    "iterations": 83,
    "learning_rate": 0.3,
    "eval_every": 5,
    "l2": 1e-4,
    "seed": 11,
}


def samples() -> tuple[list[Array], list[Array]]:
    """Few training points of many columns, which a descent soon learns by heart, and validation points."""
    rng = np.random.default_rng(5)
    draw = [rng.normal(size=(n, 8)) + shift for n, shift in ((9, 0.3), (13, 0.0), (31, 0.3), (29, 0.0))]
    return draw[:2], draw[2:]


def fitted(comm: Any, **options: Any) -> Fit:
    (x, z), (x_validation, z_validation) = (shards(comm, each) for each in samples())
    return learn(comm, x, z, x_validation=x_validation, z_validation=z_validation, **OPTIONS | options)


def hinge(w: Array, l2: float = OPTIONS["l2"]) -> float:
    x, z = samples()[1]
    return float(np.maximum(0.0, 1.0 - (x @ w)[:, None] + z @ w).mean() + l2 * (w @ w))


def auc(w: Array) -> float:
    x, z = samples()[1]
    return float((np.sign((x @ w)[:, None] - z @ w).mean() + 1.0) / 2.0)


def plain(iterations: int) -> Array:
    """The parameters of a descent that knows of no validation points."""
    return learn(SerialComm(), *samples()[0], **OPTIONS | {"iterations": iterations}).parameters


def expected(patience: int | None) -> tuple[list[int], int]:
    """Which iterations are evaluated, and which is the best, by losses that are computed here."""
    best, evaluated = 0, []
    losses = {t: hinge(plain(t)) if t else 0.0 for t in [*range(0, 83, 5), 83]}
    losses[0] = hinge(first())
    for t, loss in losses.items():
        evaluated.append(t)
        if loss < losses[best]:
            best = t
        if patience is not None and t - best >= 5 * patience:
            break
    return evaluated, best


def first() -> Array:
    config = LearnConfig(**OPTIONS)
    return set_up(SerialComm(), samples()[0], config).initial().parameters


def test_the_curves_are_those_of_the_validation_points_and_change_no_step(comm: Any) -> None:
    fit = fitted(comm, keep="last")
    assert fit.kept == fit.iterations == 83
    assert fit.parameters.tolist() == plain(83).tolist()
    curves = (fit.history[name] for name in ("iteration", "validation_loss", "validation_auc"))
    for t, loss, area in zip(*curves, strict=True):
        w = plain(int(t)) if t else first()
        assert loss == pytest.approx(hinge(w), rel=1e-12)
        assert area == pytest.approx(auc(w), abs=1e-12)


@pytest.mark.parametrize("patience", [None, 1, 2, 4, 30])
def test_the_best_parameters_are_kept_and_the_descent_ends_when_patience_does(comm: Any, patience: int | None) -> None:
    fit = fitted(comm, early_stopping=patience)
    evaluated, best = expected(patience)
    assert fit.history["iteration"].tolist() == evaluated
    assert (fit.kept, fit.iterations, fit.stopped) == (best, evaluated[-1], False)
    assert fit.parameters.tolist() == (plain(best) if best else first()).tolist()
    assert 0 < best < 83
    text = str(fit)
    assert f"iteration {best}, the lowest validation loss" in text
    assert f"{hinge(fit.parameters):.6g}" in text
    assert ("no lower validation loss" in text) == (patience is not None and patience < 30)


def test_the_last_of_an_early_stop_may_be_kept_too(comm: Any) -> None:
    fit = fitted(comm, early_stopping=2, keep="last")
    assert fit.kept == fit.iterations == expected(2)[0][-1]
    assert fit.parameters.tolist() == plain(fit.iterations).tolist()


def test_an_evaluation_after_the_last_step_counts_though_it_is_out_of_turn() -> None:
    """Of a descent that still improves: the last evaluation is its best."""
    fit = fitted(SerialComm(), iterations=8, learning_rate=0.01)
    assert fit.history["iteration"].tolist() == [0, 5, 8]
    assert np.argmin(fit.history["validation_loss"]) == 2
    assert fit.kept == 8


def test_an_optimiser_that_ends_by_itself_is_stopped_early_too() -> None:
    options = OPTIONS | {"loss": "squared-hinge", "exchange": "scores", "batch_points": None, "optimizer": "lbfgs"}
    train, validation = samples()
    apart = dict(zip(("x_validation", "z_validation"), validation, strict=True))
    every = {"eval_every": 1, "iterations": 500}
    whole = learn(SerialComm(), *train, **apart, **options | every)
    losses = whole.history["validation_loss"]
    assert whole.optimum is not None and whole.optimum.reached
    assert whole.kept == int(np.argmin(losses)) > 0
    assert "no lower validation loss" not in str(whole)
    fit = learn(SerialComm(), *train, **apart, **options | every, early_stopping=2)
    best = next(t for t in range(len(losses)) if min(losses[t + 1 : t + 3], default=np.inf) >= min(losses[: t + 1]))
    assert (fit.kept, fit.iterations) == (int(np.argmin(losses[: best + 1])), best + 2)
    assert str(fit).count("no lower validation loss in 2 evaluations") == 2


def test_an_optimiser_that_is_at_its_end_tells_the_same_when_it_goes_on(comm: Any) -> None:
    options = {"loss": "squared-hinge", "exchange": "scores", "batch_points": None, "optimizer": "lbfgs"}
    done = prepared(comm, **options, iterations=500, eval_every=7, keep="last")
    whole = finish(done)
    assert whole.iterations % 7 != 0
    resumed = prepared(comm, **options, iterations=500, eval_every=7, keep="last")
    resumed.restore(done.snapshot())
    again = finish(resumed)
    for name in ("iteration", "train_loss", "validation_loss"):
        assert again.history[name].tolist() == whole.history[name].tolist()
    assert again.kept == whole.kept == whole.iterations


def prepared(comm: Any, **options: Any) -> Learning:
    train, validation = (shards(comm, each) for each in samples())
    config = LearnConfig(**OPTIONS | {"keep": "best"} | options)
    return begun(set_up(comm, train, config, validation=validation))


def finish(learning: Learning) -> Fit:
    for _ in learning.run():
        pass
    return learning.fit()


@pytest.mark.parametrize("patience", [None, 2])
@pytest.mark.parametrize("at", [5, 8, 12, 15, 17, 29])
def test_an_interrupted_descent_goes_on_to_the_same(comm: Any, patience: int | None, at: int) -> None:
    """Also where it was evaluated, as it was stopped, at a step at which a whole one would not have been."""
    whole = finish(prepared(comm, early_stopping=patience))
    stopping = prepared(comm, early_stopping=patience)
    stopping.stop_requested = lambda: stopping.state.iteration >= at - 1
    for _ in stopping.run():
        pass
    resumed = prepared(comm, early_stopping=patience)
    resumed.restore(stopping.snapshot())
    again = finish(resumed)
    assert (again.kept, again.iterations) == (whole.kept, whole.iterations)
    assert again.parameters.tolist() == whole.parameters.tolist()
    assert again.history["validation_loss"].tolist() == whole.history["validation_loss"].tolist()


@pytest.mark.parametrize("shorter", [8, 13, 83])
def test_a_descent_that_was_at_its_end_goes_on_to_the_same(comm: Any, shorter: int) -> None:
    """What was kept as the last evaluation of a shorter descent is no evaluation of the longer one."""
    begun = prepared(comm, iterations=shorter)
    finish(begun)
    resumed = prepared(comm)
    resumed.restore(begun.snapshot())
    again, whole = finish(resumed), finish(prepared(comm))
    assert (again.kept, again.iterations) == (whole.kept, whole.iterations)
    assert again.parameters.tolist() == whole.parameters.tolist()


def test_without_validation_points_there_is_nothing_to_go_by() -> None:
    with pytest.raises(UserError, match="validation points, and there are none: set some apart"):
        learn(SerialComm(), *samples()[0], early_stopping=3)
    assert learn(SerialComm(), *samples()[0], **OPTIONS, keep="best").kept is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"early_stopping": 0}, "the number of evaluations before an early stop is 0: give a whole number of at least"),
        ({"keep": "first"}, "keep is 'first': use one of best, last"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        fitted(SerialComm(), **options)


def test_validation_points_of_one_sample_are_refused(comm: Any) -> None:
    x, z = shards(comm, samples()[0])
    with pytest.raises(UserError, match="pass x_validation and z_validation on every rank, or neither"):
        learn(comm, x, z, x_validation=x)
