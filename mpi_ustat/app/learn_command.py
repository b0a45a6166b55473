"""`mpi-ustat learn`: data to a scorer, with checkpoints on the way."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

from mpi_ustat.app.checkpointing import Checkpoints
from mpi_ustat.app.learning_points import LearningPoints, add_points_arguments, check_fractions, points_of
from mpi_ustat.app.options_as_flags import given_options
from mpi_ustat.app.parser import whole_number
from mpi_ustat.app.progress import progress
from mpi_ustat.app.result_output import Origin, add_output_arguments, print_result
from mpi_ustat.app.sample_options import add_file_arguments
from mpi_ustat.app.signals import stop_requested
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import EMPTY, EXCHANGES, MOVES, OPTIMIZERS, SHUFFLES, LearnConfig
from mpi_ustat.estimation.printed import seconds_row
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.fit import Fit
from mpi_ustat.learning.linear_model import file_of
from mpi_ustat.learning.losses import DEFAULT_LOSS, LOSSES
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.learning.optimizers import begun
from mpi_ustat.learning.printed import fit_rows, last_values
from mpi_ustat.learning.threshold import threshold_of_all
from mpi_ustat.learning.training import set_up
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.schemes.partition import DRAWS
from mpi_ustat.schemes.registry import DEFAULT_SCHEME, SCHEMES, otherwise_empty, scheme_of, who_moves
from mpi_ustat.storage.data import Samples
from mpi_ustat.storage.results import ResultFile


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser(
        "learn",
        help="learn a scorer by pairwise SGD",
        description="Learn a linear scorer that ranks positives above negatives, by pairwise SGD over all ranks.",
    )
    data = add_file_arguments(
        parser,
        positive="its value for the class that is to score higher",
        columns="columns to learn from, names, numbers, or ranges (0-63, a..f; default: all but the label)",
    )
    add_points_arguments(data)

    sampled = " and ".join(name for name, loss in LOSSES.items() if not loss.by_sorting)
    what = parser.add_argument_group("objective")
    what.add_argument(
        "--loss",
        choices=list(LOSSES),
        default=DEFAULT_LOSS,
        help=f"of s(x) - s(z) (default {DEFAULT_LOSS}); shown over all pairs, but {sampled} over 450 000 sampled pairs "
        "for the training set, and for a test set of more than 2*10^7 pairs",
    )
    what.add_argument("--l2", type=float, default=0.0, metavar="λ", help="penalty λ‖w‖² (default 0)")

    how = parser.add_argument_group("descent")
    how.add_argument("--learning-rate", type=float, default=0.01, metavar="η", help="default 0.01")
    how.add_argument(
        "--decay", type=float, default=0.0, metavar="D", help="step η/(1 + D·t) at iteration t (default 0)"
    )
    how.add_argument("--momentum", type=float, default=0.9, metavar="μ", help="v ← μv + g, w ← w - ηv (default 0.9)")
    how.add_argument("--batch-pairs", default="100", metavar="B|all", help="pairs per worker and step (default 100)")
    how.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        default="sgd",
        help="lbfgs: over all points, to the optimum, with --exchange scores --batch-points all (default sgd)",
    )
    how.add_argument(
        "--tolerance",
        type=float,
        default=LearnConfig.tolerance,
        metavar="G",
        help="lbfgs ends when no component of the gradient is larger (default 1e-6)",
    )
    how.add_argument("--iterations", type=int, default=1000, metavar="T", help="default 1000")
    how.add_argument("--init", choices=("normal", "zeros"), default="normal", help="first weights (default normal)")
    how.add_argument("--eval-every", type=int, default=25, metavar="K", help="iterations between evaluations")
    how.add_argument(
        "--early-stopping",
        type=int,
        metavar="K",
        help="end when K evaluations in turn found no lower validation loss (that of the objective, with the penalty)",
    )
    how.add_argument(
        "--keep",
        choices=("best", "last"),
        default="best",
        help="with validation points: the weights of their lowest loss (default), or the last",
    )

    spread = parser.add_argument_group("workers")
    spread.add_argument(
        "--exchange",
        choices=EXCHANGES,
        default="rows",
        help="what travels: rows, now and then (the paper's way), or the scores of each step's points, 8 bytes each, "
        "so that all their pairs count (default rows)",
    )
    spread.add_argument(
        "--batch-points",
        metavar="B|all",
        help="with --exchange scores: points of each class a worker and step (default 100)",
    )
    spread.add_argument("--workers", type=int, metavar="N", help="logical workers (default: one for each rank)")
    spread.add_argument("--repartition-every", default="25", metavar="R|never", help="iterations (default 25)")
    spread.add_argument("--scheme", choices=SCHEMES, default=DEFAULT_SCHEME, help=f"default {DEFAULT_SCHEME}")
    spread.add_argument("--move", choices=MOVES, default="both", help=f"which samples are moved ({who_moves()})")
    spread.add_argument("--shuffle", choices=SHUFFLES, default="auto", help="how samples are spread (default auto)")
    spread.add_argument("--empty", choices=EMPTY, default="", help=f"workers without a pair ({otherwise_empty()})")
    spread.add_argument("--seed", type=int, help="drawn and recorded when left out")

    add_output_arguments(parser, "weights and curves there", step="iteration")
    parser.set_defaults(run=run_command)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the command on this rank; rank 0 prints and writes.  Collective."""
    origin = Origin(comm, arguments)
    with Checkpoints.begun(comm, arguments, "iteration") as checkpoints:
        return _run(comm, arguments, origin, checkpoints)


def _run(comm: Any, arguments: argparse.Namespace, origin: Origin, checkpoints: Checkpoints) -> int:
    config = _config(arguments, comm.size, checkpoints.seed)
    points = points_of(comm, arguments, config)
    identity = _identity(config, points)
    training = set_up(
        comm,
        points.train,
        config,
        tests=points.tests,
        validation=points.validation,
        pairings=points.pairings,
        block_sizes=points.block_sizes,
        weights=points.said.get("weights"),
        groups=points.said.get("groups"),
    )
    learning = begun(training, stop_requested)
    # A descent's state is small, and its history has an entry for each evaluation: no records.
    checkpoints.go_on(identity, config.iterations, lambda parts: learning.restore(*parts))

    def keep() -> int:
        checkpoints.write(lambda _: learning.snapshot(), learning.state.iteration)
        return learning.state.iteration

    with checkpoints.kept(keep):
        steps = _steps(learning, checkpoints, keep)
        n_steps = None if config.optimizer == "lbfgs" else config.iterations  # it ends by itself
        for _ in progress(comm, steps, n_steps, "iteration", quiet=arguments.quiet, seldom=arguments.json):
            pass
        fit = learning.fit()
        if fit.stopped and fit.iterations < config.iterations:
            return checkpoints.tell_stopped(fit.iterations)
        threshold = _threshold(comm, fit, points)
        origin.save(config, lambda: result_file(fit, points, threshold))
    if comm.rank == 0:
        _print(fit, points, arguments)
    return 0


def _threshold(comm: Any, fit: Fit, points: LearningPoints) -> float | None:
    """Return the threshold that splits the scores of two classes best; None of more classes.  Collective."""
    if len(points.train) > 2:
        return None
    positive, negative = (LinearRanking().scores(fit.parameters, rows) for rows in points.train)
    found = threshold_of_all(comm, positive, negative)
    if points.scaling is not None and isinstance(points.train[0], SparseRows):  # which still have the columns' means
        found -= float((fit.parameters / points.scaling.deviation) @ points.scaling.mean)
    return found


def _config(arguments: argparse.Namespace, n_ranks: int, seed: int) -> LearnConfig:
    batch_pairs = _number_or(arguments.batch_pairs, "all", "--batch-pairs")
    batch_points = LearnConfig.batch_points
    if arguments.batch_points is not None:
        if arguments.exchange == "rows":
            raise UserError("--batch-points belongs to --exchange scores; of rows, --batch-pairs are drawn")
        batch_points = _number_or(arguments.batch_points, "all", "--batch-points")
    every = None
    if not scheme_of(arguments.scheme).as_they_lie or arguments.repartition_every != "25":
        every = _number_or(arguments.repartition_every, "never", "--repartition-every")
    names = ["loss", "l2", "learning_rate", "decay", "momentum", "scheme", "move", "shuffle", "empty", "n_workers"]
    names += ["exchange", "optimizer", "tolerance", "iterations", "init", "eval_every", "early_stopping", "keep"]
    options = {"n_workers": n_ranks} | given_options(arguments, *names)
    config = LearnConfig(
        batch_pairs=batch_pairs, batch_points=batch_points, repartition_every=every, seed=seed, **options
    )
    check_fractions(arguments, config)
    return config


def _number_or(text: str, word: str, option: str) -> int | None:
    if text == word:
        return None
    try:
        return whole_number(text)
    except argparse.ArgumentTypeError as error:
        number = "a whole number below 2^63" if text.strip("+-").isdecimal() else "a whole number"
        raise UserError(f"{option} is {text!r}: give {number} or {word}") from error


def _identity(config: LearnConfig, points: LearningPoints) -> dict[str, Any]:
    """Return a checkpoint's identity: everything that the next step depends on, but not how many there will be."""
    options = config.to_json()
    del options["iterations"]
    pairings = [list(each) for each in points.pairings]
    return options | points.preparation | {"draws of partitions": DRAWS, "data": points.digest, "pairings": pairings}


def _steps(learning: Learning, checkpoints: Checkpoints, keep: Callable[[], object]) -> Iterator[int]:
    """Run the descent, writing checkpoints by `keep`; yield once for every iteration done."""
    every, last = checkpoints.every, learning.training.config.iterations
    shown = 0
    while True:
        done = learning.state.iteration
        until = min(last, done + every - done % every) if every else last
        for record in learning.run(until):
            yield from range(shown, record.iteration)
            shown = max(shown, record.iteration)
        done = learning.state.iteration
        if checkpoints.path is not None and (every or learning.state.stopped):
            keep()
        if learning.finished:
            return


def result_file(fit: Fit, points: LearningPoints, threshold: float | None) -> ResultFile:
    """Return a fit as the content of a result file."""
    loaded = points.loaded
    lowest_first = loaded.labels if "classes" in loaded.description else loaded.labels[::-1]
    data = loaded.description | points.preparation
    return file_of(fit, loaded.columns, lowest_first, data, scaling=points.scaling, threshold=threshold)


def _how(fit: Fit) -> dict[str, Any]:
    """Return the entries that only one kind of exchange has."""
    config = fit.config
    if config.exchange == "rows":
        return {
            "scheme": config.scheme,
            "empty_workers": fit.empty_workers,
            "repartition_every": config.repartition_every,
        }
    optimum = None if fit.optimum is None else {name: each for name, each in vars(fit.optimum).items() if each != ""}
    return {"exchange": config.exchange, "batch_points": config.batch_points, "optimum": optimum}


def _print(fit: Fit, points: LearningPoints, arguments: argparse.Namespace) -> None:
    config, scaling, loaded = fit.config, points.scaling, points.loaded
    seconds = {name.removeprefix("seconds/"): float(values[-1]) for name, values in fit.history.items() if "/" in name}
    summary = {
        "weights": fit.parameters.tolist(),
        "columns": list(loaded.columns),
        "iterations": fit.iterations,
        **{name: value if math.isfinite(value) else None for name, value in last_values(fit).items()},
        **({} if fit.kept is None else {"kept_iteration": fit.kept}),
        **_sizes(fit, loaded),
        "sampled_pairs": fit.sampled_pairs,
        "n_workers": config.n_workers,
        "n_ranks": fit.n_ranks,
        **_how(fit),
        "seed": config.seed,
        "column_mean": None if scaling is None else scaling.mean.tolist(),
        "column_deviation": None if scaling is None else scaling.deviation.tolist(),
        **{name: int(fit.history[name][-1]) for name in ("bytes_moved", "bytes_reduced", "rows_moved")},
        "seconds": seconds,
    }
    weights = zip(loaded.columns, fit.parameters, strict=False)
    rows = [*fit_rows(fit, points.classes), seconds_row(seconds)]
    rows.append(("weights", " ".join(f"{name}={value:.6g}" for name, value in weights)))
    print_result(arguments, summary, rows)


def _sizes(fit: Fit, loaded: Samples) -> dict[str, Any]:
    """Return how many training points each class has."""
    if "classes" in loaded.description:
        return {"classes": loaded.description["classes"], "n_of_classes": list(fit.sizes)}
    return {"n": fit.sizes[0], "m": fit.sizes[1], "positive": loaded.description["positive"]}
