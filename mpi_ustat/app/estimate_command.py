"""`mpi-ustat estimate`: options to configuration, data to an estimate, the estimate to a table, JSON and HDF5."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.app.origin import Origin
from mpi_ustat.app.progress import progress
from mpi_ustat.config import EMPTY, MOVES, SCHEMES, SHUFFLES, EstimateConfig
from mpi_ustat.errors import UserError
from mpi_ustat.estimation import Estimate, Estimation, run
from mpi_ustat.parallel.rng import fresh_seed
from mpi_ustat.parallel.runtime import together
from mpi_ustat.statistics.kernels import DEFAULT_TILE
from mpi_ustat.storage.data import DataSource, Samples, load
from mpi_ustat.storage.results import Dataset, ResultFile, check_target, save

_EPILOG = """\
examples:
  mpiexec -n 4 mpi-ustat estimate shuttle --columns f9 --rounds 10 --output auc.h5
  mpiexec -n 4 mpi-ustat estimate scores.h5 --columns score --label y --positive 1 --complete
  mpi-ustat estimate --x a.csv --z b.csv --kernel mymodule:kernel --workers 100 --pairs 1000 --json
"""


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser(
        "estimate",
        help="estimate a U-statistic of two samples",
        description="Estimate a two-sample U-statistic over all ranks.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = parser.add_argument_group("data")
    data.add_argument("data", nargs="?", metavar="DATA", help="HDF5, NPZ, CSV or TSV (.gz too), or shuttle")
    data.add_argument("--label", metavar="COL", help="the column (name or 0-based number) that tells the samples apart")
    data.add_argument("--positive", metavar="LABEL", help="its value for the x sample (for the AUC: the positives)")
    data.add_argument("--columns", "--score", metavar="C[,C…]", help="the columns that make a point, names or numbers")
    data.add_argument("--x", metavar="FILE", help="the x sample, when each sample has a file")
    data.add_argument("--z", metavar="FILE", help="the z sample")

    what = parser.add_argument_group("statistic")
    what.add_argument("--kernel", default="auc", metavar="K", help="auc (default), product, gini or module:function")
    what.add_argument("--ties", choices=("half", "strict"), default="half", help="what a tie counts in the AUC")
    what.add_argument("--complete", action="store_true", help="all n·m pairs, instead of rounds")
    what.add_argument("--tile", type=int, default=DEFAULT_TILE, help="tile side for a kernel of your own")

    how = parser.add_argument_group("rounds")
    how.add_argument("--workers", type=int, metavar="N", help="logical workers (default: one for each rank)")
    how.add_argument("--scheme", choices=SCHEMES, help="how points lie over the workers (default prop-swor)")
    how.add_argument("--rounds", type=int, metavar="T", help="partitions to average over (default 1)")
    how.add_argument("--pairs", type=int, metavar="B", help="pairs sampled per worker and round (default: all of them)")
    how.add_argument("--aggregate", choices=("mean", "pooled"), help="mean of local values (default) or over pairs")
    how.add_argument("--empty", choices=EMPTY, help="what a worker without a pair does (default refuse; swor: zero)")
    how.add_argument("--move", choices=MOVES, help="which samples a prop-swor round spreads afresh (default both)")
    how.add_argument("--shuffle", choices=SHUFFLES, help="how prop-swor is drawn (default auto)")
    how.add_argument("--seed", type=int, help="drawn and recorded when left out")
    how.add_argument("--reference", action="store_true", help="also compute the complete statistic, to compare")

    output = parser.add_argument_group("output")
    output.add_argument("--output", metavar="F.h5", help="write all values there")
    output.add_argument("--overwrite", action="store_true", help="replace an existing file")
    output.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    output.add_argument("--quiet", action="store_true", help="no progress and no table")
    parser.set_defaults(run=run_command)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the command on this rank; rank 0 prints and writes.  Collective."""
    origin = Origin(comm, arguments)
    config = _config(arguments, comm.size, comm.bcast(fresh_seed() if comm.rank == 0 else None))
    source = _source(arguments)
    with together(comm, "checking the output file"):
        if arguments.output is not None and comm.rank == 0:
            check_target(arguments.output, arguments.overwrite)
    samples = load(comm, source, config.n_workers)
    loaded = origin.seconds
    estimation = Estimation(comm, samples.x, samples.z, config, block_sizes=(samples.x_sizes, samples.z_sizes))
    estimation.clock.seconds["load"] = loaded
    for _ in progress(comm, run(estimation), config.n_rounds, "round", quiet=arguments.quiet or arguments.json):
        pass
    estimate = estimation.result(estimation.complete() if config.complete or config.reference else None)
    with together(comm, "writing the result"):
        if comm.rank == 0 and arguments.output is not None:
            attributes = origin.attributes(n_workers=config.n_workers, seed=config.seed)
            save(arguments.output, result_file(estimate, samples, attributes), overwrite=arguments.overwrite)
    if comm.rank == 0:
        _print(estimate, arguments)
    return 0


def _config(arguments: argparse.Namespace, n_ranks: int, fresh: int) -> EstimateConfig:
    if arguments.complete:
        for option in ("rounds", "pairs", "scheme", "aggregate", "empty", "move", "shuffle"):
            if getattr(arguments, option) is not None:
                raise UserError(f"--complete takes all pairs, once: leave out --{option}")
    given = {
        "n_workers": arguments.workers,
        "scheme": arguments.scheme,
        "n_rounds": arguments.rounds,
        "n_pairs": arguments.pairs,
        "aggregate": arguments.aggregate,
        "empty": arguments.empty,
        "move": arguments.move,
        "shuffle": arguments.shuffle,
        "seed": arguments.seed,
    }
    defaults: dict[str, Any] = {"n_workers": n_ranks, "seed": fresh}
    options = defaults | {name: value for name, value in given.items() if value is not None}
    return EstimateConfig(
        kernel=arguments.kernel,
        ties=arguments.ties,
        complete=arguments.complete,
        reference=arguments.reference,
        tile=arguments.tile,
        **options,
    )


def _source(arguments: argparse.Namespace) -> DataSource:
    two_files = arguments.x is not None or arguments.z is not None
    if two_files == (arguments.data is not None) or (two_files and (arguments.x is None or arguments.z is None)):
        raise UserError("give the data as one file with --label, or as two files with --x and --z")
    if two_files and (arguments.label is not None or arguments.positive is not None):
        raise UserError("--x and --z each hold one sample: leave out --label and --positive")
    columns = tuple(arguments.columns.split(",")) if arguments.columns else ()
    return DataSource(
        path=arguments.data,
        label=arguments.label,
        positive=arguments.positive,
        columns=columns,
        x_path=arguments.x,
        z_path=arguments.z,
    )


def result_file(estimate: Estimate, samples: Samples, origin: dict[str, Any]) -> ResultFile:
    """Return the estimate as the content of a result file."""
    unit = "1" if estimate.config.kernel == "auc" else ""
    datasets = {
        "estimate": Dataset(np.array(estimate.value), unit=unit, description="the estimate"),
        "n_pairs": Dataset(_number(estimate.n_pairs), description="pairs evaluated, over all workers and rounds"),
        "n": Dataset(np.array(estimate.n), description="size of sample x"),
        "m": Dataset(np.array(estimate.m), description="size of sample z"),
    }
    if estimate.complete_value is not None:
        datasets["complete_value"] = Dataset(
            np.array(estimate.complete_value), unit=unit, description="the statistic over all pairs"
        )
        datasets["complete_bytes_moved"] = Dataset(
            np.array(estimate.complete_bytes_moved), unit="bytes", description="bytes that went between ranks for it"
        )
    scales = {}
    if not estimate.config.complete:
        scales = {"round": np.arange(len(estimate.per_round)), "worker": np.arange(estimate.config.n_workers)}
        pairs = estimate.pairs_per_worker
        for name, values, value_unit, description in (
            ("per_round/value", estimate.per_round, unit, "estimate of each round"),
            ("per_round/n_pairs", pairs.sum(axis=1), "", "pairs evaluated in each round"),
            ("per_round/rows_moved", estimate.rows_moved, "rows", "rows that changed worker"),
            ("per_round/bytes_moved", estimate.bytes_moved, "bytes", "bytes that went between ranks"),
            ("per_worker/value", estimate.per_worker, unit, "local average of each worker; NaN where it had no pair"),
            ("per_worker/n_pairs", pairs, "", "pairs behind each local average"),
        ):
            dims = ("round", "worker")[: values.ndim]
            datasets[name] = Dataset(values, dims=dims, unit=value_unit, description=description)
    for phase, seconds in estimate.seconds.items():
        datasets[f"seconds/{phase}"] = Dataset(np.array(seconds), unit="s", description="of the slowest rank")
    return ResultFile(
        kind="estimate",
        config=estimate.config.to_json() | {"data": samples.description},
        provenance=origin,
        datasets=datasets,
        scales=scales,
    )


def _number(integer: int) -> NDArray[Any]:
    """Return an integer as HDF5 can hold it: numbers of pairs may pass 2⁶³, and are then rounded to a double."""
    return np.array(integer if integer < 2**63 else float(integer))


def _print(estimate: Estimate, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps(estimate.summary(), allow_nan=False), flush=True)
    elif arguments.quiet:
        print(repr(estimate.value), flush=True)
    else:
        print("\n".join(f"{name:<18}{text}" for name, text in _table(estimate)), flush=True)
        if arguments.output is not None:
            print(f"{'written to':<18}{arguments.output}", flush=True)


def _table(estimate: Estimate) -> list[tuple[str, str]]:
    config = estimate.config
    kernel = f"auc, ties {config.ties}" if config.kernel == "auc" else config.kernel
    rows = [("estimate", repr(estimate.value)), ("kernel", kernel), ("points", f"n = {estimate.n}, m = {estimate.m}")]
    if config.complete:
        rows += [
            ("pairs", f"all {estimate.n_pairs}, by the route {estimate.route}"),
            ("moved", f"{estimate.complete_bytes_moved} bytes between {estimate.n_ranks} rank(s)"),
        ]
    else:
        sampled = "all local pairs" if config.n_pairs is None else f"{config.n_pairs} sampled pairs a worker"
        of_what = "mean of local values" if config.aggregate == "mean" else "pooled over local pairs"
        became = "counted as 0" if config.empty == "zero" and config.aggregate == "mean" else "left out"
        empty = [("without a pair", f"{estimate.empty_workers} local values, {became}")] * bool(estimate.empty_workers)
        rows += [
            ("scheme", f"{config.scheme}, {config.n_rounds} round(s) of {config.n_workers} workers"),
            ("aggregate", of_what),
            ("pairs", f"{estimate.n_pairs} ({sampled})"),
            *empty,
            (
                "moved",
                f"{estimate.rows_moved.sum()} rows between workers, "
                f"{estimate.bytes_moved.sum()} bytes between {estimate.n_ranks} rank(s)",
            ),
            ("seed", str(config.seed)),
        ]
    if estimate.complete_value is not None and not config.complete:
        rows.append(("complete value", repr(estimate.complete_value)))
    rows.append(("seconds", ", ".join(f"{phase} {s:.3f}" for phase, s in estimate.seconds.items())))
    return rows
