"""`mpi-ustat reproduce`: run an experiment, keep what it has so far, summarise it, write and draw it."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mpi_ustat.app.experiments import Experiment, make_experiment
from mpi_ustat.app.progress import progress
from mpi_ustat.config import MOVES
from mpi_ustat.errors import UserError
from mpi_ustat.montecarlo import Values, shapes, simulate
from mpi_ustat.parallel.runtime import agree, library_version, together
from mpi_ustat.storage.results import Dataset, ResultFile, check_target, load, provenance, save

ESTIMATION_FIGURES = ("fig1", "fig2", "fig3", "fig5", "fig6")
_SECONDS_BETWEEN_SAVES = 5.0


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser(
        "reproduce",
        help="run the experiments behind the paper's figures",
        description="Run the experiment behind a figure of the paper; write its numbers (HDF5) and picture (PNG, PDF). "
        "An interrupted run goes on from F.partial.h5 when it is started again with the same options.",
    )
    parser.add_argument("figure", choices=(*ESTIMATION_FIGURES, "all-estimation"))
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--runs", type=int, metavar="R", help="runs of the simulation (default: the paper's)")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--move", choices=MOVES, default="both", help="fig3: which samples are repartitioned")
    parser.add_argument(
        "--spread",
        choices=("runs", "workers"),
        default="runs",
        help="spread the runs over the ranks, or every run's workers; the numbers are the same (default runs)",
    )
    parser.add_argument("--folder", default="results", help="where to write (default results)")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run_command)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the command on this rank; rank 0 prints and writes.  Collective."""
    if arguments.runs is not None and arguments.runs < 2:
        raise UserError(f"the number of runs is {arguments.runs}: give at least 2, for a variance")
    names = ESTIMATION_FIGURES if arguments.figure == "all-estimation" else (arguments.figure,)
    for name in names:
        experiment = make_experiment(
            name, quick=arguments.quick, n_runs=arguments.runs, seed=arguments.seed, move=arguments.move
        )
        _reproduce(comm, experiment, arguments)
    return 0


def _reproduce(comm: Any, experiment: Experiment, arguments: argparse.Namespace) -> None:
    started, clock = time.time(), time.perf_counter()
    target = Path(arguments.folder, f"{experiment.name}.h5")
    pictures = [target.with_suffix(suffix) for suffix in (".png", ".pdf")]
    with together(comm, "checking the output files"):
        if comm.rank == 0:
            from mpi_ustat.app.figures_paper import check_drawable

            os.makedirs(arguments.folder, exist_ok=True)
            check_drawable()
            for path in (target, *pictures):
                check_target(path, arguments.overwrite)
    values = _simulated(comm, experiment, target.with_suffix(".partial.h5"), arguments)
    with together(comm, f"writing {target}"):
        if comm.rank == 0:
            from mpi_ustat.app.figures import save_figure
            from mpi_ustat.app.figures_paper import draw

            datasets, scales = experiment.summarise(values)
            origin = provenance(
                arguments.invocation,
                started=started,
                wall_seconds=time.perf_counter() - clock,
                n_ranks=comm.size,
                mpi_library=library_version(comm),
            )
            result = ResultFile(experiment.name, experiment.config, origin, datasets, scales)
            save(target, result, overwrite=arguments.overwrite)
            for path in pictures:
                save_figure(draw(result), path, overwrite=arguments.overwrite)
            target.with_suffix(".partial.h5").unlink(missing_ok=True)
            print(f"{experiment.name}: {experiment.title}; written to {target}, {pictures[0]}", flush=True)


def _simulated(comm: Any, experiment: Experiment, partial: Path, arguments: argparse.Namespace) -> dict[str, Values]:
    """Return the values of all runs on rank 0, going on from what an earlier attempt has left."""
    error: BaseException | None = None
    known: dict[str, Values] = {}
    try:
        if comm.rank == 0:
            known = _read_partial(partial, experiment)
    except UserError as caught:
        error = caught
    done = agree(comm, error, {label: len(each["complete"]) for label, each in known.items()}, doing="resuming")[0]

    simulations = experiment.simulations
    total = sum(config.n_runs for config in simulations.values())
    parts: dict[str, list[Values]] = {label: [known[label]] if label in known else [] for label in simulations}
    saved = time.perf_counter()

    def chunks() -> Iterator[int]:
        """Simulate what is missing; yield, run by run, for the progress."""
        nonlocal saved
        for label, config in simulations.items():
            yield from range(done.get(label, 0))
            for runs, values in simulate(comm, config, start=done.get(label, 0), spread=arguments.spread):
                parts[label].append(values)
                if comm.bcast(time.perf_counter() - saved > _SECONDS_BETWEEN_SAVES):
                    with together(comm, f"writing {partial}"):
                        if comm.rank == 0:
                            _write_partial(partial, experiment, parts)
                    saved = time.perf_counter()
                yield from runs

    for _ in progress(comm, chunks(), total, f"run of {experiment.name}", quiet=arguments.quiet):
        pass
    return {label: _joined(each) for label, each in parts.items()} if comm.rank == 0 else {}


def _joined(parts: list[Values]) -> Values:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _write_partial(path: Path, experiment: Experiment, parts: dict[str, list[Values]]) -> None:
    datasets = {
        f"{label}/{name}": Dataset(values, description="values of the runs so far")
        for label, each in parts.items()
        if each
        for name, values in _joined(each).items()
    }
    save(path, ResultFile("partial", experiment.config, {}, datasets, {}), overwrite=True)


def _read_partial(path: Path, experiment: Experiment) -> dict[str, Values]:
    if not path.exists():
        return {}
    stored = load(path)
    # Through JSON, as the stored one went: tuples have become lists.
    wanted = json.loads(json.dumps(experiment.config))
    different = sorted(
        name for name in wanted.keys() | stored.config.keys() if wanted.get(name) != stored.config.get(name)
    )
    if different:
        raise UserError(
            f"{path} is left from a run with other options ({', '.join(different)}): repeat it with those, or remove it"
        )
    return {
        label: {name: stored.datasets[f"{label}/{name}"].values for name in shapes(config)}
        for label, config in experiment.simulations.items()
        if f"{label}/complete" in stored.datasets
    }
