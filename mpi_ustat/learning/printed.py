"""The short table that says what was learnt: what `print` and the command line show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpi_ustat.errors import brief
from mpi_ustat.estimation.printed import Rows, sizes_text
from mpi_ustat.wording import count_of, plural

if TYPE_CHECKING:
    from mpi_ustat.learning.fit import Fit


def last_values(fit: Fit) -> dict[str, float]:
    """Return the losses and AUCs of the parameters, by the last evaluation of them; NaN where there are none."""
    names = ["train_loss", "train_auc", "test_loss", "test_auc"]
    names += [name for name in ("validation_loss", "validation_auc") if name in fit.history]
    iterations = fit.history["iteration"].tolist()
    place = iterations.index(fit.kept) if fit.kept in iterations else -1
    return {name: float(fit.history[name][place]) if iterations else math.nan for name in names}


def fit_rows(fit: Fit, classes: Sequence[str] = ()) -> Rows:
    """Return the rows of a fit's table; `classes` are names of the samples, where they have any."""

    def text(name: str, value: float) -> str:
        pairs = fit.sampled_pairs.get(name.removesuffix("_loss"))
        return f"{value:.6g}" if pairs is None else f"{value:.6g}, over {count_of(pairs, 'sampled pair')}"

    config, at = fit.config, fit.optimum
    if config.exchange == "scores":
        n = config.batch_points
        points = "all points" if n is None else f"{count_of(n, 'point')} of each class a worker"
        how = [("exchanged", f"scores, of {points} in each step")]
    else:
        n = config.repartition_every
        every = "never" if n is None else f"every {plural(n, 'iteration', f'{n} iterations')}"
        how = [("repartitioned", f"{every}, {config.scheme}")]
    if at is not None:
        ended = (
            ""
            if at.reached
            else f", above the tolerance: {at.ended or _early(fit).strip(' ()') or 'ask for more iterations'}"
        )
        evaluations = count_of(at.evaluations, "evaluation")
        how.append(("gradient", f"largest component {at.largest:.3g} after {evaluations}{ended}"))
    last, workers = last_values(fit).items(), count_of(config.n_workers, "worker")
    return [
        ("points", f"{sizes_text(fit.sizes, classes)} for training"),
        ("iterations", f"{fit.iterations}{_early(fit)}, {workers} on {count_of(fit.n_ranks, 'rank')}"),
        *how,
        *([] if fit.kept is None else [("kept", _kept(fit))]),
        *((name.replace("_", " "), text(name, value)) for name, value in last if not math.isnan(value)),
        *[("without a pair", f"{count_of(fit.empty_workers, 'worker')}, over all partitions")]
        * bool(fit.empty_workers),
        ("seed", str(fit.config.seed)),
    ]


def _early(fit: Fit) -> str:
    """Tell whether the descent was stopped early, and why."""
    at_end = fit.iterations >= fit.config.iterations or (fit.optimum is not None and fit.optimum.reached)
    if fit.config.early_stopping is None or fit.stopped or at_end:
        return ""
    return f" (no lower validation loss in {count_of(fit.config.early_stopping, 'evaluation')})"


def _kept(fit: Fit) -> str:
    """Tell which parameters are kept; losses and AUCs are theirs."""
    why = "the lowest validation loss" if fit.config.keep == "best" else "the last step"
    return f"iteration {fit.kept}, {why}"


def parameters_row(fit: Fit) -> tuple[str, str]:
    """Return the row of the parameters, which have no names in the library."""
    return "parameters", brief(" ".join(f"{value:.6g}" for value in fit.parameters.tolist()))
