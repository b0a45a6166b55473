"""`mpi-ustat estimate --test`: data to a test that two samples are of one law, and that to a table, JSON and HDF5."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from mpi_ustat.app.analysis_output import learnt_datasets
from mpi_ustat.app.options_as_flags import given_options
from mpi_ustat.app.result_output import Origin, print_result
from mpi_ustat.app.said_options import SAID
from mpi_ustat.app.sample_options import kernel_options, load_samples, source_of
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.printed import seconds_row
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.mpi.runtime import PhaseClock
from mpi_ustat.numerics.rng import fresh_seed
from mpi_ustat.storage.data import Samples
from mpi_ustat.storage.results import Dataset, ResultFile
from mpi_ustat.testing.result import TestResult
from mpi_ustat.testing.samples import SamplesTest, of_samples, samples_tested
from mpi_ustat.testing.several import Several, listed
from mpi_ustat.testing.test import DEFAULT_PERMUTATIONS, carried_out, check_options, with_first

_MOST_STORED = 100_000
_BINS = 1000
_OF_ALL = "sum over pairs of samples of their discrepancy times n_k n_l/(2N)"

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
    if arguments.scheme not in (None, "rotation") or (arguments.scheme and arguments.rounds is None):
        raise UserError("--test takes all pairs, or with --rounds those that meet in a rotation: leave out --scheme")
    check_options(arguments.kernel, _permutations(arguments), arguments.workers, arguments.rounds)
    return True


def run_test(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the test on this rank; rank 0 prints and writes.  Collective."""
    origin, clock = Origin(comm, arguments), PhaseClock()
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
    origin.save(replace(config, n_workers=found.n_workers or sum(found.n_blocks)), lambda: result_file(found, samples))
    if comm.rank == 0:
        summary = found.summary() | {name: samples.description.get(name) for name in ("positive", "classes")}
        rows = [*found.rows(samples.names), seconds_row(found.seconds)]
        print_result(arguments, summary, rows, quiet=f"{found.value!r}\n{found.p!r}")
    return 0


def _permutations(arguments: argparse.Namespace) -> int:
    return DEFAULT_PERMUTATIONS if arguments.permutations is None else int(arguments.permutations)


def result_file(found: TestResult, samples: Samples) -> ResultFile:
    """Return a test as the content of a result file."""
    of_sample = ("sample",)
    quantiles = np.array(list(found.quantiles.values()))
    over = "over all pairs" if found.n_rounds is None else "of the workers that met"
    which = "all" if found.exact else "random"
    whom = "both" if len(found.sizes) == 2 else "all"
    datasets = {
        "estimate": Dataset(np.array(found.value), (), found.unit, f"the discrepancy of the samples, {over}"),
        "sizes": Dataset(np.array(found.sizes), of_sample, "", "sizes of the samples"),
        "test/p": Dataset(np.array(found.p), (), "1", f"p-value of the test that {whom} samples are of one law"),
        "test/n_permutations": Dataset(np.array(found.n_permutations), (), "", f"{which} relabellings of the blocks"),
        "test/n_blocks": Dataset(np.array(found.n_blocks), of_sample, "", "blocks of each sample"),
        "test/block_size": Dataset(np.array(found.block_size), (), "points", "points in each block"),
        "test/n_pairs": Dataset(np.array(found.n_pairs), (), "", "pairs of points that were evaluated"),
        "test/rests": Dataset(np.array(found.rests), of_sample, "points", "points that keep their label"),
        "test/quantile": Dataset(quantiles, ("level",), found.unit, "quantiles of the relabelled values"),
        **learnt_datasets(found.learnt),
    }
    scales = {"level": np.array(list(found.quantiles))}
    if found.several is not None:
        datasets["estimate"] = replace(datasets["estimate"], description="the largest of several studentised values")
        datasets |= _of_several(found.several)
        scales[found.several.option] = np.array(found.several.used)
    if found.n_permutations <= _MOST_STORED:
        description = f"the {'discrepancy' if found.several is None else 'statistic'} under each relabelling"
        datasets["test/relabelled"] = Dataset(found.relabelled, ("permutation",), found.unit, description)
    else:
        counts, edges = np.histogram(found.relabelled, bins=_BINS)
        datasets["test/count"] = Dataset(counts, ("bin",), "", "relabelled values in each bin")
        datasets["test/edge"] = Dataset(edges, ("edge",), found.unit, "where bins end and the next begin")
    if isinstance(found, SamplesTest):
        if found.several is None:
            datasets["estimate"] = replace(datasets["estimate"], description=_OF_ALL)
        datasets |= _of_pairs(found)
    for phase, seconds in found.seconds.items():
        datasets[f"seconds/{phase}"] = Dataset(np.array(seconds), (), "s", "of the slowest rank")
    config = {
        "kernel": found.kernel,
        "kernel_options": found.kernel_options,
        "n_permutations": found.n_permutations,
        "exact": found.exact,
        "n_workers": found.n_workers or sum(found.n_blocks),
        "n_rounds": found.n_rounds,
        "seed": found.seed,
        "data": samples.description,
    }
    return ResultFile("test", config, {}, datasets, scales)


def _of_several(found: Several) -> dict[str, Dataset]:
    """Return what each kernel has found, as datasets."""
    of = (found.option,)
    return {
        "test/several/estimate": Dataset(np.array(found.estimates), of, "", "the discrepancy"),
        "test/several/studentised": Dataset(np.array(found.studentised), of, "1", "(estimate - mean)/deviation, or 0"),
        "test/several/mean": Dataset(np.array(found.means), of, "", "of the relabelled values and the estimate"),
        "test/several/deviation": Dataset(np.array(found.deviations), of, "", "of the same, the standard one"),
        "test/several/largest": Dataset(np.array(found.largest), (), "", "which of them is the largest, from 0"),
    }


def _of_pairs(found: SamplesTest) -> dict[str, Dataset]:
    """Return what the tests of every two samples have found, as datasets."""
    told = {
        "first": ("", "a sample, from 0"),
        "second": ("", "the other"),
        "value": (found.unit, "the discrepancy of the two"),
        "p": ("1", "p-value of the test that the two are of one law"),
        "p_holm": ("1", "the same, corrected by Holm for how many pairs of samples there are"),
        "n_permutations": ("", "relabellings of the blocks of the two"),
    }
    return {
        f"test/pairs/{name}": Dataset(np.array([getattr(pair, name) for pair in found.pairs]), ("pair",), unit, what)
        for name, (unit, what) in told.items()
    }
