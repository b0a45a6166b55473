"""`mpi-ustat estimate`: options to configuration, data to an estimate, the estimate to a table, JSON and HDF5."""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.app.checkpointing import Checkpoints
from mpi_ustat.app.options_as_flags import given_options, in_flags
from mpi_ustat.app.progress import progress
from mpi_ustat.app.result_output import Origin, add_output_arguments, print_result
from mpi_ustat.app.said_options import add_said_arguments, said, said_columns
from mpi_ustat.app.sample_options import (
    add_sample_arguments,
    column_names,
    kernel_options,
    load_samples,
    source_of,
)
from mpi_ustat.app.signals import stop_requested
from mpi_ustat.app.testing_option import add_test_arguments, run_test, wants_test
from mpi_ustat.complete.roc import roc
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.by_default import ABOUT_ROUNDS, asks_for_rounds, refuse_a_long_wait
from mpi_ustat.estimation.config import EMPTY, MOVES, SHUFFLES, EstimateConfig
from mpi_ustat.estimation.estimates import Estimate
from mpi_ustat.estimation.estimation import Estimation
from mpi_ustat.estimation.estimation import run as estimation_rounds
from mpi_ustat.estimation.printed import Rows, bar, estimate_rows, p_equals, seconds_row, told_test
from mpi_ustat.estimation.problem import Problem, set_up
from mpi_ustat.estimation.round_arrays import FORM, arrays_to_rounds, rounds_to_arrays
from mpi_ustat.estimation.rounds import State
from mpi_ustat.estimation.stored import (
    file_of_estimate,
    influence_of_all,
    plain_difference,
    plain_groups,
    plain_omnibus,
)
from mpi_ustat.estimation.tidy import of_difference
from mpi_ustat.inference.intervals import Difference
from mpi_ustat.kernels.multiclass import MULTICLASS, multiclass_auc
from mpi_ustat.kernels.registry import DEFAULT_KERNEL
from mpi_ustat.mpi.collectives import on_any_rank
from mpi_ustat.mpi.fingerprint import fingerprint
from mpi_ustat.mpi.runtime import announced
from mpi_ustat.schemes.as_is import AsIs
from mpi_ustat.schemes.partition import DRAWS
from mpi_ustat.schemes.registry import DEFAULT_SCHEME, SCHEMES, otherwise_empty, scheme_help, scheme_of, who_moves
from mpi_ustat.storage.data import Samples
from mpi_ustat.storage.table_files import SUFFIXES, suffix_of
from mpi_ustat.user.code_digest import code_digest
from mpi_ustat.wording import count_of

_TWO_BARS = """\
the standard error and the interval are about the population that the points are a sample of; "to U_n" (in the JSON and
the file stderr_to_complete) is about the statistic of all pairs of these points: what more rounds would remove, 0 with
--complete
"""

_EPILOG = """\
examples:
  mpi-ustat estimate scores.csv --columns score --label y --positive 1
  mpiexec -n 4 mpi-ustat estimate shuttle --columns f9 --workers 100 --rounds 10 --output auc.h5
  mpiexec -n 4 mpi-ustat estimate --x a.csv --z b.csv --columns u,v --kernel energy --test
  mpi-ustat estimate --x a.csv --z b.csv --kernel mymodule:kernel --workers 100 --pairs 1000 --json
"""


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser(
        "estimate",
        help="estimate a U-statistic",
        description="Estimate a U-statistic of one or more samples over all ranks.",
        epilog=_EPILOG + "\n" + scheme_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_sample_arguments(parser)
    add_said_arguments(parser)
    parser.add_argument(
        "--complete",
        action="store_true",
        help="all pairs, however long it takes: what is estimated anyway, unless an option about rounds is given",
    )
    parser.add_argument(
        "--multiclass",
        choices=MULTICLASS,
        help="AUCs of several classes, of --columns one a class: each against the rest, or every two (Hand and Till); "
        "implies --complete",
    )

    parser.add_argument(
        "--roc", action="store_true", help="also keep the ROC curve of each column with its band, for plot; all pairs"
    )

    how = parser.add_argument_group(
        "rounds",
        "any of these except --seed and --no-per-worker, and --checkpoint, asks for an estimate by rounds instead of "
        "all pairs",
    )
    how.add_argument("--workers", type=int, metavar="N", help="logical workers (default: one for each rank)")
    how.add_argument("--scheme", choices=SCHEMES, help=f"how points lie over the workers (default {DEFAULT_SCHEME})")
    how.add_argument("--rounds", type=int, metavar="T", help="partitions to average over (default 1)")
    how.add_argument("--pairs", type=int, metavar="B", help="pairs sampled per worker and round (default: all of them)")
    how.add_argument("--distinct", action="store_true", help="sample different pairs, instead of independent ones")
    how.add_argument("--aggregate", choices=("mean", "pooled"), help="mean of local values (default) or over pairs")
    how.add_argument("--empty", choices=EMPTY, help=f"what a worker without a pair does ({otherwise_empty()})")
    how.add_argument("--move", choices=MOVES, help=f"which samples a round spreads afresh ({who_moves()})")
    how.add_argument("--shuffle", choices=SHUFFLES, help="how samples are spread (default auto)")
    how.add_argument("--no-per-worker", action="store_true", help="keep no worker's values, but each round's and sums")
    how.add_argument("--seed", type=int, help="drawn and recorded when left out; of all pairs 0")
    how.add_argument("--reference", action="store_true", help="also compute U_n, over all pairs, to compare")
    how.add_argument("--bias-report", action="store_true", help="how far the shards as they lie are from U_n")

    add_test_arguments(parser)

    error = parser.add_argument_group("error bar", _TWO_BARS)
    error.add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="level of the interval (default 0.95)"
    )
    error.add_argument("--interval", choices=("auto", "logit", "wald"), default="auto", help="kind (default auto)")
    error.add_argument("--no-stderr", action="store_true", help="no standard error, which takes some time")
    error.add_argument(
        "--null", type=float, metavar="VALUE", help="test that the value is this (default: the kernel's)"
    )
    error.add_argument("--margin", type=float, metavar="D", help="test differences against being worse by D or more")
    error.add_argument("--difference", action="store_true", help="differences between the columns, with their error")

    add_output_arguments(parser, "all values there", step="round", tables=True)
    parser.set_defaults(run=run_command)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the command on this rank; rank 0 prints and writes.  Collective."""
    if wants_test(arguments):
        return run_test(comm, arguments)
    origin = Origin(comm, arguments)
    with Checkpoints.begun(comm, arguments, "round") as checkpoints:
        return _run(comm, arguments, origin, checkpoints)


def _run(comm: Any, arguments: argparse.Namespace, origin: Origin, checkpoints: Checkpoints) -> int:
    config = _config(arguments, comm.size, checkpoints.seed)
    several = arguments.multiclass is not None
    source = source_of(comm, arguments, said_columns(arguments), multiclass=several)
    samples = load_samples(comm, source, config.n_workers)
    rows, sizes, about = said(comm, arguments, samples)
    loaded = origin.seconds
    if arguments.roc and about:
        raise UserError("--roc counts points: leave out what is said of them, or --roc")
    columns, kernel = column_names(arguments, samples), None
    if several:
        kernel = multiclass_auc(comm, arguments.multiclass, rows, config.ties, config.kernel_options)
        columns = kernel.statistics(samples.description["classes"])
    if arguments.difference and not columns:
        raise UserError("a difference is one of several columns: give them with --columns a,b and --kernel auc")
    problem = set_up(
        comm,
        rows,
        config,
        kernel=kernel,
        block_sizes=sizes,
        columns=columns,
        names=samples.names,
        workers_given=arguments.workers is not None,
        about=about,
        coordinates=samples.columns,
        on_every_rank=False,
    )
    if config.complete and not (arguments.complete or several):
        refuse_a_long_wait(problem)
    estimation = Estimation(problem)
    estimation.clock.seconds["load"] = loaded
    if arguments.bias_report and problem.n_statistics > 1:
        raise UserError("--bias-report is about one statistic: choose one column, or a kernel with one")
    identity = {} if checkpoints.path is None else _identity(problem)
    checkpoints.go_on(identity, config.n_rounds, lambda parts: _restore(estimation, parts))

    def keep(whole: bool = True) -> int:
        done = len(estimation.state.rounds)
        checkpoints.write(lambda since: _snapshot(comm, estimation, since), done, whole=whole)
        return done

    with checkpoints.kept(keep):
        rounds = run(comm, estimation, checkpoints, keep)
        for _ in progress(comm, rounds, config.n_rounds, "round", quiet=arguments.quiet, seldom=arguments.json):
            pass
        if not config.complete and len(estimation.state.rounds) < config.n_rounds:
            return checkpoints.tell_stopped(len(estimation.state.rounds))
        estimate = estimation.result()
        differences = estimate.differences(arguments.margin) if arguments.difference and comm.rank == 0 else iter(())
        paired = list(announced(differences, "difference", total=math.comb(len(columns), 2)))
        influence = influence_of_all(comm, estimate) if about.influence else []
        tests = estimate.tests(arguments.null)
        told, curves = samples.description, []
        if arguments.roc:
            curves = [roc(comm, *column, confidence=config.confidence) for column in _scores(rows)]
        summary = functools.cache(lambda: _summary(estimate, samples, paired, arguments))
        origin.save(
            config,
            lambda: file_of_estimate(estimate, told, paired, tests, influence, curves, words=in_flags),
            lambda: summary() | plain_groups(estimate),
        )
    if comm.rank == 0:
        _print(estimate, samples, paired, arguments, summary())
    return 0


def _scores(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the samples of each column."""
    columns = [each.reshape(len(each), -1).T for each in rows]
    return list(zip(*columns, strict=True))


def run(comm: Any, estimation: Estimation, checkpoints: Checkpoints, keep: Callable[[bool], object]) -> Iterator[None]:
    """Run the rounds, none for the complete statistic; yield once for every round done.

    `keep` writes a checkpoint, now and then if there is to be one, and when a stop is requested; whole in the end.
    """
    config, every = estimation.problem.config, checkpoints.every
    yield from (None for _ in estimation.state.rounds)  # those of the run that this one goes on from
    for _ in estimation_rounds(estimation):
        done, stopped = len(estimation.state.rounds), False
        if checkpoints.path is not None:
            stopped = on_any_rank(comm, stop_requested())
            last = stopped or done == config.n_rounds
            if stopped or (every and (done % every == 0 or last)):
                keep(last)
        yield
        if stopped:
            return


def _identity(problem: Problem) -> dict[str, Any]:
    """Return a checkpoint's identity: everything that a round depends on, but not how many there will be."""
    config = problem.config
    options = config.to_json()
    for name in ("complete", "n_rounds", "reference", "confidence", "interval", "per_worker"):
        del options[name]
    rows = [exchange.rows for exchange in problem.exchanges]
    # Only rows that stay where they lie care where in the file they were.
    blocks = (problem.block_sizes or ()) if scheme_of(config.scheme).as_they_lie else ()
    arrays = [np.asarray(each, dtype=np.float64) for each in (*rows, *blocks)]
    foreign = problem.kernel.foreign
    place = config.kernel if ":" in config.kernel else f"{type(problem.kernel).__module__}:"
    code = {} if foreign is None else {"code of the kernel": code_digest(foreign, place)}
    forms = {"draws of partitions": DRAWS, "form of rounds": FORM}
    return options | code | forms | {"data": fingerprint(problem.comm, arrays)}


def _snapshot(comm: Any, estimation: Estimation, since: int) -> dict[str, NDArray[Any]]:
    """Return, on rank 0, what `_restore` needs besides earlier ones, on any number of ranks.  Collective."""
    slowest = estimation.clock.slowest(comm)
    if comm.rank != 0:
        return {}
    seconds = {f"seconds/{name}": np.array(each) for name, each in slowest.items()}
    return {
        "round": np.array(len(estimation.state.rounds)),
        **rounds_to_arrays(estimation.state.rounds[since:]),
        **seconds,
    }


def _restore(estimation: Estimation, parts: list[dict[str, NDArray[Any]]]) -> None:
    """Go on from snapshots: a round is a function of the data, the options and its number, and needs no replay."""
    keeps, is_master = estimation.problem.keeps_records, estimation.problem.comm.rank == 0
    rounds = [each for arrays in parts for each in arrays_to_rounds(arrays, with_records=keeps)]
    if keeps and any(each.record is None for each in rounds):
        raise UserError("the checkpoint is of a run without values of each worker: go on with per_worker=False")
    estimation.state = State(tuple(rounds))
    if is_master:  # the slowest rank's seconds go on on rank 0
        for name, values in parts[-1].items():
            if name.startswith("seconds/"):
                phase = name.removeprefix("seconds/")
                estimation.clock.seconds[phase] = estimation.clock.seconds.get(phase, 0.0) + float(values)


def _config(arguments: argparse.Namespace, n_ranks: int, fresh: int) -> EstimateConfig:
    if arguments.margin is not None and not arguments.difference:
        raise UserError("--margin is for differences between columns: give --difference too")
    if arguments.margin is not None and not 0.0 <= arguments.margin < math.inf:
        raise UserError(f"--margin is {arguments.margin:g}: give by how much the first may be worse, 0 or more")
    if arguments.null is not None and not math.isfinite(arguments.null):
        raise UserError(f"--null is {arguments.null:g}: give a finite value to test against")
    if arguments.roc and (arguments.kernel != DEFAULT_KERNEL or arguments.multiclass is not None):
        raise UserError("--roc is of scores of two classes: leave out --kernel and --multiclass")
    if arguments.roc and arguments.output is None:
        raise UserError("--roc is kept in the result file, from which mpi-ustat plot draws it: give --output F.h5")
    if arguments.roc and suffix_of(arguments.output) in SUFFIXES:
        raise UserError("--roc is kept in an HDF5 file, not in a table: end the name of --output in .h5")
    if arguments.difference and arguments.no_stderr:
        raise UserError("a difference comes with its standard error: leave out --no-stderr")
    if arguments.multiclass is not None:
        if arguments.kernel != DEFAULT_KERNEL:
            raise UserError(f"--multiclass is of the AUC: leave out --kernel {arguments.kernel}")
        if arguments.x is not None or arguments.z is not None:
            raise UserError("--multiclass is of one file with a label column: leave out --x and --z")
        if arguments.bias_report:
            raise UserError("--multiclass takes all pairs, once: leave out --bias-report")
    all_pairs = "--complete" if arguments.complete else "--multiclass" if arguments.multiclass is not None else ""
    if all_pairs:
        if arguments.checkpoint is not None:
            raise UserError(f"{all_pairs} takes all pairs, once: leave out --checkpoint, which is for rounds")
        if arguments.no_per_worker:
            raise UserError(f"{all_pairs} takes all pairs, once: leave out --no-per-worker")
        for option in ("rounds", "pairs", "scheme", "aggregate", "empty", "move", "shuffle"):
            if getattr(arguments, option) is not None:
                raise UserError(f"{all_pairs} takes all pairs, once: leave out --{option}")
    if arguments.bias_report:
        for option in ("complete", "rounds", "pairs", "scheme"):
            if getattr(arguments, option):
                raise UserError(f"--bias-report takes the shards as they lie, and all pairs: leave out --{option}")
        arguments.scheme, arguments.reference = AsIs.name, True
    options = given_options(arguments, "kernel", "ties", "confidence", "interval", "tile", "seed", *ABOUT_ROUNDS)
    rounds = asks_for_rounds(options) or arguments.checkpoint is not None
    # All pairs have one value; with them, what is learnt from some points must not differ from run to run either.
    options = {"n_workers": n_ranks, "seed": fresh if rounds else 0} | options
    of_kernel = kernel_options(arguments)
    if arguments.multiclass is not None:
        of_kernel |= {"multiclass": arguments.multiclass}
    complete = bool(all_pairs) or not rounds
    if arguments.roc and not complete:
        raise UserError("--roc is of all pairs: leave it out, or the options of rounds")
    if arguments.no_per_worker and complete:
        raise UserError("--no-per-worker is of rounds: leave it out, or give --rounds or another option about them")
    return EstimateConfig(
        kernel_options=of_kernel,
        stderr=not arguments.no_stderr,
        per_worker=not arguments.no_per_worker,
        complete=complete,
        **options,
    )


def _summary(
    estimate: Estimate, samples: Samples, paired: Sequence[Difference], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the estimate, and what belongs to it here, as JSON holds it."""
    # What the samples are: which label x has, and of several classes their order.
    summary = estimate.summary(arguments.null) | {
        name: samples.description.get(name) for name in ("positive", "classes")
    }
    summary |= {name: summary[name] and list(map(in_flags, summary[name])) for name in ("flags", "complete_flags")}
    if arguments.difference:
        found = map(plain_difference, paired)
        summary["differences"] = [each | {"statistic": of_difference(each, estimate.columns)} for each in found]
        summary["omnibus"] = plain_omnibus(estimate)
    return summary


def _print(
    estimate: Estimate,
    samples: Samples,
    paired: Sequence[Difference],
    arguments: argparse.Namespace,
    summary: dict[str, Any],
) -> None:
    rows = [*estimate_rows(estimate, samples.names, arguments.null), seconds_row(estimate.seconds)]
    rows = [(name, in_flags(text) if name == "beware" else text) for name, text in rows]
    for each in paired:
        rows += _difference_rows(each, estimate.columns)
    rows += _omnibus_row(estimate) if arguments.difference else []
    print_result(arguments, summary, rows, quiet="\n".join(map(repr, estimate.values.tolist())))


def _difference_rows(each: Difference, columns: tuple[str, ...]) -> Rows:
    name = f"{columns[each.first]} - {columns[each.second]}"
    tested = "" if each.test is None else f"; {told_test(each.test)}"
    row = ("difference", f"{name}: {each.value!r}{bar(each.stderr, each.interval)}{tested}")
    return [row, *(("beware", f"{name}: {flag}") for flag in each.flags)]


def _omnibus_row(estimate: Estimate) -> Rows:
    """Return the row of the test that all statistics are equal; none of fewer than three, or where there is no test."""
    found = estimate.omnibus() if len(estimate.columns) > 2 else None
    if found is None:
        return []
    degrees = count_of(found.rank, "degree")
    return [("all equal", f"chi-squared = {found.statistic:.4g} ({degrees}), p {p_equals(found.p)}")]
