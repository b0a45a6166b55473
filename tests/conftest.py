"""Fixtures, and what makes pytest behave when it runs in several MPI ranks at once.

Every test of a distributed function takes the fixture `comm` and runs on communicators of several sizes: in one process
on a communicator of that process alone, and in a run of 4 ranks (`mpiexec -n 4 python -m mpi4py -m pytest --with-mpi`)
on the first 2, 3 and 4 ranks, and on communicators of one. A rank that is not in a communicator does not collect the
test. The tests without `comm` have nothing to do with ranks, and would do there what they do in the run in one process:
a run of several ranks leaves them out. Those marked `launched` stay, which look at the run itself. They and the tests
on one rank come last and are dealt out.

In a run of several ranks rank 0 speaks for all: it alone writes to the terminal, and what happened on the other ranks
appears in its summary. When a failure can't get there, because rank 0 waits inside a collective call for the rank that
failed, that rank writes it to stderr and aborts the job.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from mpi_ustat.mpi.launch import world
from mpi_ustat.mpi.runtime import SerialComm

REPOSITORY = Path(__file__).resolve().parents[1]
WORLD = world()
RANK, SIZE = WORLD.rank, WORLD.size

GRACE = 5.0
"""Seconds a failed rank waits for the others to end their tests, before it concludes that they wait for it."""

hypothesis.settings.register_profile("mpi_ustat", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("mpi_ustat")


# ---------------------------------------------------------------------------------------------------------------------
# Communicators


def _communicators() -> dict[int, Any]:
    """Return communicators of this rank, and of the first 2, 3, 4 and all ranks if it is one of them, by size."""
    if isinstance(WORLD, SerialComm):
        return {1: WORLD}
    from mpi4py import MPI

    if SIZE == 1:
        return {1: MPI.COMM_SELF}
    sizes = sorted({size for size in (2, 3, 4, SIZE) if size <= SIZE})
    several = {size: WORLD.Split(0 if size > RANK else MPI.UNDEFINED, RANK) for size in sizes}
    return {1: MPI.COMM_SELF, **several}


COMMUNICATORS = _communicators()


@pytest.fixture(params=list(COMMUNICATORS), ids=lambda size: f"{size}ranks" if size > 1 else "1rank")
def comm(request: pytest.FixtureRequest) -> Any:
    """A communicator of each size in turn; the test runs on its ranks only."""
    return COMMUNICATORS[request.param]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave each rank its tests: first those of the communicators it belongs to, then its share of the others.

    The largest communicators come first. A rank that has nothing more to do sleeps at the end, where inside the next
    collective call it would keep a core busy that others need.
    """
    if SIZE > 1:
        sizes = [_ranks_needed(item) for item in items]
        others = [item for item, size in zip(items, sizes, strict=True) if size is None]
        assert not [item.nodeid for item in others if "comm" in getattr(item, "fixturenames", ())], "left out unseen"
        config.hook.pytest_deselected(items=[item for item in others if not _stays(item)])
        shared = sorted((size for size in COMMUNICATORS if size > max(RANK, 1)), reverse=True)
        together = [item for size in shared for item in _of_size(items, size)]
        alone = [*_of_size(items, 1), *(item for item in others if _stays(item))]
        items[:] = together + alone[RANK::SIZE]


def _of_size(items: Sequence[pytest.Item], size: int) -> list[pytest.Item]:
    """Return the tests on a communicator of this size."""
    return [item for item in items if _ranks_needed(item) == size]


def _runs_alone(item: pytest.Item) -> bool:
    """Tell whether one rank alone runs this test."""
    return (_ranks_needed(item) or 1) == 1


def _stays(item: pytest.Item) -> bool:
    """Tell whether a test without a communicator belongs to a run of several ranks too."""
    return item.get_closest_marker("launched") is not None


def _ranks_needed(item: pytest.Item) -> int | None:
    """Return the size of the test's communicator, None for a test without one."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("comm")


@pytest.fixture
def shared_tmp_path(comm: Any, tmp_path: Path) -> Path:
    """Return a temporary folder that is the same for all ranks of `comm`."""
    return Path(comm.bcast(str(tmp_path)))


# ---------------------------------------------------------------------------------------------------------------------
# Several ranks, one pytest


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Give each rank a folder for temporary files of its own: they would race for the common one."""
    if SIZE == 1:
        return
    parent = WORLD.bcast(config.option.basetemp or (tempfile.mkdtemp(prefix="pytest-ranks-") if RANK == 0 else None))
    if RANK == 0 and not config.option.basetemp:
        config.add_cleanup(lambda: shutil.rmtree(parent, ignore_errors=True))
    Path(parent).mkdir(parents=True, exist_ok=True)
    config.option.basetemp = str(Path(parent, f"rank{RANK}"))


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let rank 0 speak for all ranks."""
    if SIZE == 1:
        return
    config.option.maxfail = 1  # a rank that goes on after a failure is out of step with the others
    plugins = config.pluginmanager
    plugins.register(_OneVoice(config), "one-voice")
    if RANK > 0:
        reporter: Any = plugins.get_plugin("terminalreporter")
        plugins.unregister(reporter)
        plugins.register(_Mute(reporter._tw), "terminalreporter")


class _Mute:
    """In the place of pytest's reporter; reports nothing.

    The writer stays within reach, because pytest-timeout writes the stacks of a rank that hangs to it.
    """

    def __init__(self, writer: Any) -> None:
        self._tw = writer


class _OneVoice:
    """Brings the reports of all ranks to rank 0, and ends all ranks together."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.own: set[str] = set()
        """The tests that run on one rank only, this one."""
        self.reports: list[pytest.TestReport | pytest.CollectReport] = []
        """What rank 0 can't know: all about `own`, and the failures of the other tests."""
        self.in_session = False

    def pytest_sessionstart(self) -> None:
        self.in_session = True

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.own = {item.nodeid for item in session.items if _runs_alone(item)}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.nodeid in self.own:
            self.reports.append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.reports.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Wait for the other ranks, then hand the reports to rank 0, whose summary follows."""
        nothing = pytest.ExitCode.NO_TESTS_COLLECTED
        failed = exitstatus not in (pytest.ExitCode.OK, nothing)
        arrival = WORLD.Ibarrier()
        patience = time.monotonic() + GRACE
        while not arrival.Test():
            if failed and time.monotonic() > patience:
                self._fail_alone()
            time.sleep(0.01)

        self.in_session = False
        hook = self.config.hook
        reports = [hook.pytest_report_to_serializable(config=self.config, report=report) for report in self.reports]
        everyone = WORLD.gather((int(exitstatus), reports))
        if RANK > 0:
            session.exitstatus = pytest.ExitCode.OK  # rank 0 speaks for all
            return
        if not failed:
            session.exitstatus = max((status for status, _ in everyone if status != nothing), default=nothing)
        told = {_failure(report) for report in self.reports if report.failed}
        for rank, (_, serialized) in enumerate(everyone[1:], start=1):
            for data in serialized:
                report = hook.pytest_report_from_serializable(config=self.config, data=data)
                if report.failed:  # mostly the same on all ranks: told once
                    if _failure(report) in told:
                        continue
                    told.add(_failure(report))
                    report.nodeid += f" [rank {rank}]"
                self._count(report)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Let rank 0's summary have a report of another rank."""
        category = "error"
        if isinstance(report, pytest.TestReport):
            category = self.config.hook.pytest_report_teststatus(report=report, config=self.config)[0]
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        reporter.stats.setdefault(category, []).append(report)

    def _fail_alone(self) -> None:
        """Say what failed on this rank, and end the job: the other ranks wait for this one."""
        for report in self.reports:
            if not report.failed:
                continue
            text = f"{report.nodeid} failed, and other ranks wait:\n{report.longreprtext}\n"
            text += "".join(f"--- {title} ---\n{content}\n" for title, content in report.sections)
            sys.stderr.write("".join(f"[rank {RANK}] {line}\n" for line in text.splitlines()))
        sys.stderr.flush()
        sys.stdout.flush()
        time.sleep(0.2)  # the launcher still has to pass it on
        WORLD.Abort(1)

    def pytest_unconfigure(self) -> None:
        """Hold the others until rank 0 has written its summary; a rank that fell out of step aborts the job instead."""
        sys.stdout.flush()
        if self.in_session:
            sys.stderr.flush()
            WORLD.Abort(1)
        WORLD.barrier()


def _failure(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str]:
    """Return what failed and why, without what differs between ranks anyway, such as addresses of objects."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
    return report.nodeid, re.sub(r"\b0x[0-9a-f]+", "0x", text)


# ---------------------------------------------------------------------------------------------------------------------
# Command lines

_LAUNCHERS = re.compile(r"(PMI|PMIX|OMPI|PRTE|SLURM|HYDRA|HYDI|MPI)_")
_OUR_SETTINGS = re.compile(r"OMPI_ALLOW_RUN_AS_ROOT|OMPI_MCA_(btl|osc|rmaps_base_oversubscribe)$|PRTE_MCA_rmaps_")


def scrubbed_environment() -> dict[str, str]:
    """Return the environment without what an MPI launcher or SLURM has put there: a child would take it for its own."""
    return {
        name: value for name, value in os.environ.items() if _OUR_SETTINGS.match(name) or not _LAUNCHERS.match(name)
    }


def _mpiexec() -> str | None:
    """Return the launcher of the MPI library in use: the virtual environment's own, or else the one on the PATH."""
    own = Path(sys.prefix, "bin", "mpiexec")
    return str(own) if own.exists() else shutil.which("mpiexec")


def started(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a program without input, in a session of its own and a scrubbed environment to which `env` is added."""
    environment = {**scrubbed_environment(), **(env or {})}
    search = [environment.get("PYTHONPATH"), str(REPOSITORY)]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, search))  # the tree, where nothing is installed
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment,
        start_new_session=True,
    )


def _kill_group(process: subprocess.Popen[str]) -> None:
    """End a process and all it has started: MPI launchers end their ranks on SIGTERM."""
    for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


Mpirun = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def mpirun() -> Mpirun:
    """Return a function that runs `mpi-ustat` in a number of ranks.

    ``mpirun(n, *args, timeout=60, program=("-m", "mpi_ustat"), cwd=None, env=None)`` runs ``mpiexec -n n python -m
    mpi_ustat args…`` and returns the completed process with its text output; n = 0 runs it without `mpiexec`. `program`
    are other arguments for Python, `env` variables to add. When the time is over, all its processes are killed and the
    test fails. For runs of pytest in one process only.
    """
    if SIZE > 1:
        pytest.skip("command lines are tested by pytest in one process")

    def run(
        n: int,
        *args: object,
        timeout: float = 60,
        program: Sequence[str] = ("-m", "mpi_ustat"),
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *program, *map(str, args)]
        if n > 0:
            launcher = _mpiexec()
            if launcher is None:
                pytest.skip("there is no mpiexec, neither in this Python environment nor on the PATH")
            command = [launcher, "-n", str(n), *command]
        process = started(command, cwd=cwd, env=env)
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException as error:
            _kill_group(process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            out, err = process.communicate()
            pytest.fail(f"{' '.join(command)}\nran longer than {timeout} s\nstdout: {out}\nstderr: {err}")
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    return run


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `mpi_ustat.app.cli.main` run in this process as if it were the only one, also in a run of several ranks."""
    run_alone(monkeypatch)


def run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what the fixture `alone` does, for as long as `monkeypatch` lasts."""
    monkeypatch.setattr("mpi_ustat.app.cli.world", SerialComm)
    monkeypatch.setattr("mpi_ustat.app.cli.launched_size", lambda: (1, 0))


@pytest.fixture
def here(
    request: pytest.FixtureRequest, alone: None, capfd: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command line in this process, alone.

    A module's COMMAND, if it has one, are the first words of each that isn't given a `command`.
    """
    from mpi_ustat.app.cli import main

    first = getattr(request.module, "COMMAND", ())

    def run(*arguments: object, command: tuple[str, ...] = first) -> subprocess.CompletedProcess[str]:
        code = main([*command, *map(str, arguments)])
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, err)

    return run


# ---------------------------------------------------------------------------------------------------------------------
# Data


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data sets: $MPI_USTAT_DATA, or shared/data beside the repository."""
    folder = Path(os.environ.get("MPI_USTAT_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the real data sets are not at {folder}: set MPI_USTAT_DATA to their folder")
    return folder
