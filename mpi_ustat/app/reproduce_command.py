"""`mpi-ustat reproduce`: run an experiment, keep what it has so far, summarise it, write and draw it."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mpi_ustat.app.checkpointing import tell_stopped
from mpi_ustat.app.exit_codes import STOPPED
from mpi_ustat.app.output_files import check_names
from mpi_ustat.app.progress import progress
from mpi_ustat.app.result_output import Origin
from mpi_ustat.app.signals import stop_requested
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import MOVES
from mpi_ustat.mpi.collectives import largest_integers
from mpi_ustat.mpi.interrupts import interrupt_of_all, is_of_all
from mpi_ustat.mpi.runtime import attempt, together
from mpi_ustat.paper.experiments import Experiment, make_experiment
from mpi_ustat.paper.experiments_coverage import coverage, coverage_table
from mpi_ustat.paper.experiments_learning import PRESETS, figure4, repartition_map
from mpi_ustat.paper.montecarlo import Values, run_study
from mpi_ustat.storage.checkpoint import Claim
from mpi_ustat.storage.files import check_target
from mpi_ustat.storage.results import Dataset, ResultFile, as_written, load, save
from mpi_ustat.storage.texts import shown

ESTIMATION_FIGURES = ("fig1", "fig2", "fig3", "fig5", "fig6")
LEARNING_FIGURES = ("fig4", "fig4-map")
_GROUPS = {"all-estimation": ESTIMATION_FIGURES, "all-learning": LEARNING_FIGURES}
_SECONDS_BETWEEN_SAVES = 5.0


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser(
        "reproduce",
        help="run the experiments behind the paper's figures, or that on the coverage of confidence intervals",
        description="Run the experiment behind a figure of the paper, or `coverage`: how often confidence intervals "
        "hold the truth; write its numbers (HDF5) and picture (PNG, PDF). An interrupted run goes on from F.partial.h5 "
        "when it is started again with the same options; SIGUSR1 and SIGTERM make it write that file and leave with "
        "exit code 75, Ctrl-C with 130.",
    )
    parser.add_argument("figure", choices=(*ESTIMATION_FIGURES, *LEARNING_FIGURES, "coverage", *_GROUPS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--runs", type=int, metavar="R", help="runs of the simulation (default: the paper's)")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--move", choices=MOVES, default="both", help="fig3: which samples are repartitioned")
    parser.add_argument("--preset", choices=PRESETS, nargs="+", help="fig4: which of its two set-ups (default both)")
    parser.add_argument(
        "--cells",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="coverage: only the groups of cells whose names fit, such as 'gini*'; without --folder their table is "
        "printed, and nothing written",
    )
    parser.add_argument(
        "--spread",
        choices=("runs", "workers"),
        default="runs",
        help="spread the runs over the ranks, or every run's workers; the numbers are the same (default runs)",
    )
    parser.add_argument("--folder", help="where to write (default results)")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run_command)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the command on this rank; rank 0 prints and writes.  Collective."""
    if arguments.runs is not None and arguments.runs < 2:
        raise UserError(f"the number of runs is {arguments.runs}: give at least 2, for a variance")
    names = _GROUPS.get(arguments.figure, (arguments.figure,))
    if arguments.cells and arguments.figure != "coverage":
        raise UserError("cells are those of the study of coverage: leave out --cells")
    experiments = [experiment for name in names for experiment in _experiments(name, arguments)]
    if arguments.cells and arguments.folder is None:
        return _print_only(comm, experiments[0], arguments)
    arguments.folder = arguments.folder or "results"
    done: list[bool] = []
    with together(comm, "checking the output files"):
        if comm.rank == 0:
            from mpi_ustat.plots.pictures import check_drawable

            check_drawable()
            os.makedirs(arguments.folder, exist_ok=True)
            done = [_is_done(experiment, arguments, several=len(experiments) > 1) for experiment in experiments]
    for experiment, finished in zip(experiments, comm.bcast(done), strict=True):
        if not (finished or _reproduce(comm, experiment, arguments)):
            return STOPPED
    return 0


def _print_only(comm: Any, experiment: Experiment, arguments: argparse.Namespace) -> int:
    """Run an experiment and print its table; keep nothing."""
    values = _simulated(comm, experiment, None, arguments)
    if comm.rank == 0 and values:
        datasets, scales = experiment.summarise(values)
        print(coverage_table(ResultFile(experiment.name, experiment.config, {}, datasets, scales)), flush=True)
    return 0


def _files(experiment: Experiment, arguments: argparse.Namespace) -> tuple[Path, list[Path]]:
    """Return where an experiment's numbers and pictures go."""
    target = Path(arguments.folder, f"{experiment.name}.h5")
    return target, [target.with_suffix(suffix) for suffix in (".png", ".pdf")]


def _partial(target: Path) -> Path:
    return target.with_suffix(".partial.h5")


def _is_done(experiment: Experiment, arguments: argparse.Namespace, *, several: bool) -> bool:
    """Tell whether an experiment is there already, with the same options; refuse other files.

    One of several may be; and one whose pictures are not all there, as it was interrupted before: they are drawn now.
    """
    target, pictures = _files(experiment, arguments)
    check_names({path.name: os.fspath(path) for path in (target, *pictures)}, [os.fspath(_partial(target))])
    missing = [path for path in pictures if not os.path.lexists(path)]
    result = None if arguments.overwrite or not (several or missing) else _earlier(target, experiment)
    if result is None:
        for path in (target, *pictures):
            check_target(path, arguments.overwrite)
        return False
    with as_written(os.fspath(target)):
        _draw(result, missing)
    _partial(target).unlink(missing_ok=True)
    drawn = f"; drawn: {', '.join(map(str, missing))}" if missing else ""
    print(f"{experiment.name}: {target} is there already{drawn}", flush=True)
    return True


def _earlier(target: Path, experiment: Experiment) -> ResultFile | None:
    """Return the result that an earlier run of this experiment has left, if it has."""
    with suppress(UserError):
        found = load(target)
        if found.kind == experiment.name and found.config == _as_stored(experiment.config):
            return found
    return None


def _draw(result: ResultFile, pictures: list[Path], *, overwrite: bool = False) -> None:
    from mpi_ustat.plots.pictures import draw, save_figure

    for path in pictures:
        save_figure(draw(result), path, overwrite=overwrite)


def _as_stored(config: dict[str, Any]) -> Any:
    """Return the options as a file gives them back: tuples have become lists."""
    return json.loads(json.dumps(config))


def _experiments(name: str, arguments: argparse.Namespace) -> list[Experiment]:
    quick, seed = arguments.quick, arguments.seed
    if name == "fig4":
        n_runs = arguments.runs or (10 if quick else 100)
        return [figure4(preset, n_runs=n_runs, seed=seed) for preset in arguments.preset or PRESETS]
    if name == "fig4-map":
        return [repartition_map(n_runs=arguments.runs or (2 if quick else 10), seed=seed)]
    if name == "coverage":
        return [coverage(seed=seed, n_runs=arguments.runs, quick=quick, cells=arguments.cells)]
    return [make_experiment(name, quick=quick, n_runs=arguments.runs, seed=seed, move=arguments.move)]


def _reproduce(comm: Any, experiment: Experiment, arguments: argparse.Namespace) -> bool:
    """Run an experiment, write and draw it; tell whether it came to its end."""
    origin = Origin(comm, arguments)
    target, pictures = _files(experiment, arguments)
    partial = _partial(target)
    values = _simulated(comm, experiment, partial, arguments)
    if values is None:
        tell_stopped(comm, _so_far(partial))
        return False
    with together(comm, f"writing {target}"):
        if comm.rank == 0:
            datasets, scales = experiment.summarise(values)
            result = ResultFile(experiment.name, experiment.config, origin.attributes(), datasets, scales)
            save(target, result, overwrite=arguments.overwrite)
            _draw(result, pictures, overwrite=arguments.overwrite)
            partial.unlink(missing_ok=True)
            print(f"{experiment.name}: {experiment.title}; written to {target}, {pictures[0]}", flush=True)
            if result.kind == "coverage":
                print(coverage_table(result), flush=True)
    return True


def _simulated(
    comm: Any,
    experiment: Experiment,
    partial: Path | None,
    arguments: argparse.Namespace,
) -> dict[str, Values] | None:
    """Return the values of all runs on rank 0, going on from what an earlier attempt has left; None if stopped.

    Without a file for what is left nothing is read or kept.
    """

    def found() -> tuple[Claim | None, dict[str, Values]]:
        return (None, {}) if comm.rank != 0 or partial is None else (Claim(partial), _read_partial(partial, experiment))

    def counts(found: tuple[Claim | None, dict[str, Values]]) -> dict[str, int]:
        return {label: len(next(iter(each.values()))) for label, each in found[1].items()}

    (claim, known), (done, *_) = attempt(comm, found, "resuming", share=counts)

    studies = experiment.studies
    total = sum(study.n_runs for study in studies.values())
    parts: dict[str, list[Values]] = {label: [known[label]] if label in known else [] for label in studies}
    saved, stopped = time.perf_counter(), False

    def keep() -> None:
        if partial is not None:
            with together(comm, f"writing {partial}"):
                if claim is not None:
                    _write_partial(claim, experiment, parts)

    def chunks() -> Iterator[int]:
        """Simulate what is missing; yield, run by run, for the progress."""
        nonlocal saved, stopped
        for label, study in studies.items():
            yield from range(done.get(label, 0))
            for runs, values in run_study(comm, study, start=done.get(label, 0), spread=arguments.spread):
                parts[label].append(values)
                is_time = comm.rank == 0 and time.perf_counter() - saved > _SECONDS_BETWEEN_SAVES
                stopped, saves = largest_integers(comm, np.array([stop_requested(), is_time])).astype(bool).tolist()
                if stopped or saves:
                    keep()
                    saved = time.perf_counter()
                yield from runs
                if stopped:
                    return

    try:
        for _ in progress(comm, chunks(), total, f"run of {experiment.name}", quiet=arguments.quiet):
            pass
    except KeyboardInterrupt as interrupt:
        if not is_of_all(interrupt) or partial is None:
            raise
        keep()
        raise interrupt_of_all(_so_far(partial)) from interrupt
    if stopped:
        return None
    return {label: _joined(each) for label, each in parts.items()} if comm.rank == 0 else {}


def _so_far(partial: Path) -> str:
    return f", the runs so far are in {partial}: start it again with the same options to go on"


def _joined(parts: list[Values]) -> Values:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _write_partial(claim: Claim, experiment: Experiment, parts: dict[str, list[Values]]) -> None:
    datasets = {
        f"{label}/{name}": Dataset(values, description="values of the runs so far")
        for label, each in parts.items()
        if each
        for name, values in _joined(each).items()
    }
    claim.replace(ResultFile("partial", experiment.config, {}, datasets, {}))


def _read_partial(path: Path, experiment: Experiment) -> dict[str, Values]:
    if not path.exists():
        return {}
    stored = load(path)
    wanted = _as_stored(experiment.config)
    different = sorted(
        name for name in wanted.keys() | stored.config.keys() if wanted.get(name) != stored.config.get(name)
    )
    if different:
        raise UserError(
            f"{path} is left from a run with other options ({', '.join(map(shown, different))}): repeat it with those, "
            "or remove it"
        )
    return {
        label: {name: stored.datasets[f"{label}/{name}"].values for name in study.shapes()}
        for label, study in experiment.studies.items()
        if all(f"{label}/{name}" in stored.datasets for name in study.shapes())
    }
