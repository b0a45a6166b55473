"""`mpi-ustat plan`: what ways to estimate would give and cost, and which one to take."""

from __future__ import annotations

import argparse
import functools
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpi_ustat.app.options_as_flags import as_flags, given_options
from mpi_ustat.app.output_files import check_names, keep_places
from mpi_ustat.app.result_output import Origin, add_output_arguments
from mpi_ustat.app.sample_options import (
    add_sample_arguments,
    given_arguments,
    given_files,
    kernel_options,
    load_samples,
    source_of,
)
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import EstimateConfig, LearnConfig
from mpi_ustat.learning.gradient_share import GradientShare, gradient_share
from mpi_ustat.learning.learn import learn
from mpi_ustat.learning.losses import DEFAULT_LOSS, LOSSES
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.rng import fresh_seed
from mpi_ustat.planning.plan import Plan, choose
from mpi_ustat.planning.printed import plan_lines, way
from mpi_ustat.planning.ways_to_learn import WayToLearn, recommended, ways_to_learn
from mpi_ustat.points.checked import checked_points
from mpi_ustat.points.preparation import standardisation
from mpi_ustat.points.rows import as_rows_of_points
from mpi_ustat.schemes.registry import scheme_of
from mpi_ustat.storage.data import Samples
from mpi_ustat.storage.files import check_target
from mpi_ustat.storage.results import Dataset, ResultFile
from mpi_ustat.wording import count_of, plural

_MUCH = 0.1
"""The share of unseen pairs in a gradient's variance from which on repartitioning can pay."""

_EPILOG = """\
examples:
  mpiexec -n 4 mpi-ustat plan scores.csv --columns score --label y --workers 100 --target-stderr 0.002
  mpiexec -n 4 mpi-ustat plan pairs.csv --columns a,b --kernel mymodule:h --label y --budget-seconds 60
  mpiexec -n 4 mpi-ustat plan shuttle --learn --workers 100 --batch-pairs 100
"""


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser(
        "plan",
        help="predict standard errors and seconds of ways to estimate, and choose one",
        description="Predict, from a pilot and a short measurement of this job, what each scheme, number of rounds and "
        "number of pairs would give and cost. With --learn: whether repartitioning pays for learning.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_sample_arguments(parser)
    how = parser.add_argument_group("plan")
    how.add_argument("--workers", type=int, metavar="N", help="logical workers (default: one for each rank)")
    how.add_argument("--target-stderr", type=float, metavar="E", help="the standard error to reach")
    how.add_argument("--budget-seconds", type=float, metavar="S", help="how long an estimate may take")
    how.add_argument("--aggregate", choices=("mean", "pooled"), help="of local values (default mean)")
    how.add_argument("--seed", type=int, help="drawn when left out")

    learning = parser.add_argument_group("learning")
    learning.add_argument(
        "--learn",
        action="store_true",
        help="the share of unseen pairs in the gradient's variance, and what a step of each way to learn costs",
    )
    learning.add_argument("--loss", choices=list(LOSSES), default=DEFAULT_LOSS)
    learning.add_argument("--batch-pairs", type=int, default=100, metavar="B", help="pairs a worker (default 100)")

    add_output_arguments(parser, "the plan there; mpi-ustat plot draws it", tables=True)
    parser.set_defaults(run=run_command)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the command on this rank; rank 0 prints and writes.  Collective."""
    origin = Origin(comm, arguments)
    fresh = comm.bcast(fresh_seed() if comm.rank == 0 else None)
    options = {"n_workers": comm.size, "seed": fresh}
    options |= given_options(arguments, "kernel", "ties", "n_workers", "aggregate", "seed", "tile")
    config = EstimateConfig(kernel_options=kernel_options(arguments), **options)
    with together(comm, "checking the output file"):
        if arguments.output is not None and comm.rank == 0:
            check_names({"output": arguments.output}, given_files(arguments), tables=True)
            check_target(arguments.output, arguments.overwrite)
    keep_places(arguments)
    others = (arguments.target_stderr, arguments.budget_seconds, arguments.output)
    if arguments.learn and any(each is not None for each in others):
        raise UserError("--learn asks another question: leave out --target-stderr, --budget-seconds and --output")
    samples = load_samples(comm, source_of(comm, arguments), config.n_workers)
    if arguments.learn:
        return _learn(comm, arguments, samples, config)
    wanted = {name: getattr(arguments, name) for name in ("target_stderr", "budget_seconds")}
    found = choose(comm, samples.rows, config, **wanted)
    command = _command(found, arguments, config)
    told = {"command": command, "positive": samples.description.get("positive")}
    content = functools.partial(result_file, found, config, samples.description, wanted, command)
    origin.save(config, content, lambda: found.summary() | told)
    if comm.rank == 0 and arguments.json:
        print(json.dumps(found.summary() | told, allow_nan=False), flush=True)
    elif comm.rank == 0:
        print("\n".join(_lines(found, arguments, command)), flush=True)
    return 0


def result_file(
    found: Plan, config: EstimateConfig, data: dict[str, Any], wanted: dict[str, Any], command: str | None
) -> ResultFile:
    """Return the plan as the content of a result file."""
    choices = found.choices
    columns = {
        "scheme": (np.array([way(each) for each in choices]), "", "scheme, and what it moves"),
        "n_rounds": (np.array([each.n_rounds for each in choices]), "", "rounds"),
        "n_pairs": (np.array([each.n_pairs or 0 for each in choices]), "", "pairs a worker and round; 0: all"),
        "stderr": (np.array([each.stderr for each in choices]), "", "predicted standard error"),
        "seconds": (np.array([each.seconds for each in choices]), "s", "predicted, of the slowest rank"),
        "bytes_moved": (np.array([each.bytes_moved for each in choices]), "bytes", "predicted, between ranks"),
    }
    datasets = {
        name: Dataset(values, ("choice",), unit, description) for name, (values, unit, description) in columns.items()
    }
    pilot = "Hoeffding components, from the pilot"
    datasets["components"] = Dataset(found.components, ("component",), "", pilot)
    chosen = np.array(-1 if found.recommended is None else choices.index(found.recommended))
    datasets["recommended"] = Dataset(chosen, (), "", "number of the recommended choice; -1: none")
    options = config.to_json() | {"data": data, "sizes": list(found.sizes), "n_ranks": found.n_ranks, **wanted}
    options |= {"measured": found.measured, "command": command, "uncertainty": found.uncertainty}
    options["flags"] = list(found.flags)
    return ResultFile("plan", options, {}, datasets, {"choice": np.arange(len(choices))})


def _command(found: Plan, arguments: argparse.Namespace, config: EstimateConfig) -> str | None:
    if found.recommended is None:
        return None
    words = ["mpiexec", "-n", str(found.n_ranks)] if found.n_ranks > 1 else []
    words += ["mpi-ustat", "estimate", *given_arguments(arguments), "--workers", str(config.n_workers)]
    words += as_flags(found.recommended.options())
    scheme = scheme_of(found.recommended.scheme)
    if arguments.aggregate is not None and not scheme.all_pairs and scheme.aggregate != "pooled":
        words += ["--aggregate", arguments.aggregate]  # to others it makes no difference
    return shlex.join(words)


def _lines(found: Plan, arguments: argparse.Namespace, command: str | None) -> list[str]:
    best = min(choice.stderr for choice in found.choices)
    if command is not None:
        last = command
    elif arguments.target_stderr is not None:
        last = f"No way reaches {arguments.target_stderr:g}: these points allow {best:.4g} at best."
    else:
        last = f"No way takes less than {arguments.budget_seconds:g} s."
    return [*plan_lines(found), last]


def _learn(comm: Any, arguments: argparse.Namespace, samples: Samples, config: EstimateConfig) -> int:
    """Print where the variance of the gradient comes from, at the start and where it is small."""
    if len(samples.rows) != 2:
        raise UserError("--learn is for two samples, positives and negatives: leave out --kernel and --classes")
    x, z = checked_points(comm, "xz", samples.rows, as_rows_of_points)
    objective = LinearRanking(arguments.loss)
    scale = standardisation(comm, (x, z))
    x, z = (scale.apply(rows) for rows in (x, z))
    fit = learn(
        comm, x, z, objective, n_workers=config.n_workers, batch_pairs=arguments.batch_pairs, seed=config.seed,
        iterations=200, eval_every=200, repartition_every=25, init="zeros", learning_rate=0.05,
    )  # fmt: skip
    shares = {
        place: gradient_share(
            comm, (x, z), objective, parameters,
            n_workers=config.n_workers, batch_pairs=arguments.batch_pairs, seed=config.seed,
        )
        for place, parameters in (("at zero", np.zeros_like(fit.parameters)), ("after 200 steps", fit.parameters))
    }  # fmt: skip
    options = LearnConfig(
        n_workers=config.n_workers, batch_pairs=arguments.batch_pairs, seed=config.seed, loss=arguments.loss
    )
    ways = ways_to_learn(comm, (x, z), options)
    if comm.rank == 0:
        matter = max(share.share for share in shares.values()) > _MUCH
        best = recommended(ways, options.iterations, arguments.loss, unseen_matter=matter)
        if arguments.json:
            measured = [vars(each) for each in ways]
            found = {place: vars(share) for place, share in shares.items()}
            print(json.dumps(found | {"ways": measured, "recommended": best}), flush=True)
        else:
            table = _share_table(shares, config.n_workers, arguments.batch_pairs)
            print("\n".join([*table, "", *_ways_table(ways, best)]), flush=True)
    return 0


def _ways_table(ways: Sequence[WayToLearn], best: Mapping[str, Any]) -> list[str]:
    names = [_named(each.options) for each in ways]
    width = max(map(len, names)) + 1
    lines = [
        "Ways to learn, measured in this job:",
        "",
        f"{'':<{width}}{'ms a step':>12}{'kB a step':>12}{'unseen pairs':>16}",
    ]
    for name, each in zip(names, ways, strict=True):
        unseen = "some" if each.unseen else "none"
        lines.append(f"{name:<{width}}{1e3 * each.seconds:>12.3g}{1e-3 * each.n_bytes:>12.4g}{unseen:>16}")
    optimum = " (L-BFGS goes to the optimum over all pairs)" if best.get("optimizer") == "lbfgs" else ""
    return [*lines, "", f"Recommended: {' '.join(_learn_flags(best))}{optimum}"]


def _named(options: Mapping[str, Any]) -> str:
    if options.get("exchange") == "scores":
        points = options["batch_points"]
        of_each = "all points" if points is None else f"{count_of(points, 'point')} of each class a worker"
        return f"scores, of {of_each}"
    every = options["repartition_every"]
    often = (
        "never repartitioned"
        if every is None
        else f"repartitioned every {plural(every, 'iteration', f'{every} iterations')}"
    )
    return f"rows, {often}"


def _learn_flags(options: Mapping[str, Any]) -> list[str]:
    words = {"batch_points": "all", "repartition_every": "never"}
    return as_flags({name: words[name] if value is None else value for name, value in options.items()})


def _share_table(shares: dict[str, GradientShare], n_workers: int, batch: int) -> list[str]:
    lines = [
        f"Variance of the mean gradient of {count_of(n_workers, 'worker')}, {count_of(batch, 'pair')} each, by where "
        "it comes from",
        "(of standardised columns, added over the coordinates):",
        "",
        f"{'':<18}{'points':>12}{'unseen pairs':>14}{'sampling':>12}{'share of unseen pairs':>24}",
    ]
    for place, each in shares.items():
        lines.append(
            f"{place:<18}{each.points:>12.4g}{each.unseen_pairs:>14.4g}{each.sampling:>12.4g}"
            f"{100 * each.share:>22.2f} %"
        )
    worst = max(each.share for each in shares.values())
    advice = (
        "Repartitioning can pay: without it the unseen pairs' part stays the same in every iteration."
        if worst > _MUCH
        else "Repartitioning hardly pays: pairs that are never seen add little to what sampling and the points do."
    )
    return [*lines, "", advice]
