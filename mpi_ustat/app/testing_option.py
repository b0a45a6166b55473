"""`mpi-ustat estimate --test`: data to a test that two samples are of one law, and that to a table, JSON and HDF5."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from mpi_ustat.app.checkpointing import check_files
from mpi_ustat.app.options_as_flags import given_options
from mpi_ustat.app.output_files import keep_places
from mpi_ustat.app.result_output import Origin, print_result
from mpi_ustat.app.said_options import SAID
from mpi_ustat.app.sample_options import kernel_options, load_samples, source_of
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.printed import seconds_row
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.estimation.tidy import of_pair
from mpi_ustat.mpi.runtime import PhaseClock, together
from mpi_ustat.numerics.rng import fresh_seed
from mpi_ustat.schemes.registry import scheme_of
from mpi_ustat.testing.result import TestResult
from mpi_ustat.testing.samples import of_samples, samples_tested
from mpi_ustat.testing.several import listed
from mpi_ustat.testing.stored import file_of_test
from mpi_ustat.testing.test import DEFAULT_PERMUTATIONS, carried_out, check_options, with_first

_OF_SCHEMES = ("pairs", "distinct", "aggregate", "empty", "move", "shuffle", "reference")
_OF_RUNS = ("bias_report", "checkpoint", "checkpoint_every", "resume")
_OF_ERROR_BARS = ("null", "margin", "difference", "interval", "confidence")


def add_test_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the test."""
    group = parser.add_argument_group("test", "whether samples are of one law, by --kernel energy or mmd")
    group.add_argument(
        "--test",
        action="store_true",
        help="exact p-value: relabels blocks of both samples, about --workers of them (default: by their sizes); all "
        "pairs, or with --rounds T those of --workers (33 to 129) that meet in a rotation, within which it relabels; "
        "without a standard error; of a --label with more values or --classes: of all samples, and every two",
    )
    group.add_argument("--permutations", type=int, metavar="R", help=f"relabellings (default {DEFAULT_PERMUTATIONS})")


def wants_test(arguments: argparse.Namespace) -> bool:
    """Tell whether it is a test that is asked for, and refuse the options that have no meaning there.

    Raises
    ------
    UserError
    """
    if not arguments.test:
        if arguments.permutations is not None:
            raise UserError("--permutations is how often a test relabels the samples: give --test too")
        return False
    if arguments.multiclass is not None:
        raise UserError("--test is of two samples and a discrepancy, --multiclass of the AUC: leave out one")
    for options, why in (
        (_OF_SCHEMES, "takes all pairs that meet, of blocks that it deals out itself"),
        (_OF_RUNS, "is one pass, of no more than its rounds"),
        (_OF_ERROR_BARS, "has a p-value and neither error bar nor interval"),
        (SAID, "exchanges points that are alike but for their sample"),
    ):
        for option in options:
            value, default = getattr(arguments, option), {"confidence": 0.95, "interval": "auto"}.get(option)
            if value is not None and value is not False and value != default:
                raise UserError(f"--test {why}: leave out --{option.replace('_', '-')}")
    if arguments.scheme and (arguments.rounds is None or not scheme_of(arguments.scheme).blocks_travel):
        raise UserError("--test takes all pairs, or with --rounds those that meet in a rotation: leave out --scheme")
    check_options(arguments.kernel, _permutations(arguments), arguments.workers, arguments.rounds)
    return True


def run_test(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the test on this rank; rank 0 prints and writes.  Collective."""
    origin, clock = Origin(comm, arguments), PhaseClock()
    with together(comm, "checking the output files"):
        check_files(comm.rank, arguments, "round")
        keep_places(arguments)
    fresh = comm.bcast(fresh_seed() if comm.rank == 0 else None)
    options = kernel_options(arguments)
    lists = listed(arguments.kernel, options)
    config = EstimateConfig(
        complete=True,
        stderr=False,
        n_workers=comm.size,
        kernel_options=with_first(options, lists),
        **{"seed": fresh} | given_options(arguments, "kernel", "seed"),
    )
    source = source_of(comm, arguments)
    if len(source.classes or ()) > 2:  # none of them is positive
        source = replace(source, highest_first=False)
    samples = load_samples(comm, replace(source, or_all=True), comm.size)
    clock.seconds["load"] = origin.seconds
    names, coordinates = samples.names, samples.columns
    numbers = _permutations(arguments), arguments.workers
    found: TestResult
    if len(samples.rows) > 2:
        if arguments.rounds is not None:
            raise UserError(f"--rounds is of a test of two samples, not of {len(samples.rows)}: leave it out")
        kernel = of_samples(config.kernel, len(samples.rows), config.kernel_options)
        problem = set_up(comm, samples.rows, config, kernel=kernel, names=names, coordinates=coordinates)
        found = samples_tested(problem, config.kernel_options, *numbers, clock, lists)
    else:
        problem = set_up(comm, samples.rows, config, names=names, coordinates=coordinates)
        found = carried_out(problem, *numbers, clock, lists, arguments.rounds)
    config = replace(config, n_workers=found.n_workers or sum(found.n_blocks))
    classes = samples.description.get("classes")
    summary = found.summary() | {"positive": samples.description.get("positive"), "classes": classes}
    for each in summary.get("pairs", ()):
        each["statistic"] = of_pair(each, classes)
    origin.save(config, lambda: file_of_test(found, samples.description), lambda: summary)
    if comm.rank == 0:
        rows = [*found.rows(samples.names), seconds_row(found.seconds)]
        print_result(arguments, summary, rows, quiet=f"{found.value!r}\n{found.p!r}")
    return 0


def _permutations(arguments: argparse.Namespace) -> int:
    return DEFAULT_PERMUTATIONS if arguments.permutations is None else int(arguments.permutations)
