"""Jobs whose ranks fail on purpose: they end by themselves, say why, and leave nothing that is not whole."""

from __future__ import annotations

import faulthandler
import functools
import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest
from commands import refusal, write_csv
from conftest import REPOSITORY, Mpirun, _mpiexec
from faulty import KINDS, PHASES, VARIABLE, Fault, faults, parse

from mpi_ustat import SerialComm, UserError
from mpi_ustat.app import hang_detection
from mpi_ustat.app.hang_detection import watched
from mpi_ustat.mpi import runtime
from mpi_ustat.mpi.runtime import PhaseClock, entering, together
from mpi_ustat.storage import files
from mpi_ustat.storage.files import left_aside, write_whole

Here = Callable[..., CompletedProcess[str]]

COMMAND = ("estimate",)
FAULTY = (str(REPOSITORY / "scripts" / "faulty.py"),)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "data.csv", [(k * 0.7 % 1.0, k % 2) for k in range(40)], "s,y")


# --- what the variable asks for


def test_a_fault_is_described_by_four_words() -> None:
    assert parse("exchange:12:3:hang") == Fault("exchange", 12, 3, "hang")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "give it as phase:count:rank:kind"),
        ("exchange:1:hang", "give it as phase:count:rank:kind"),
        ("exchange:-1:0:hang", "give it as phase:count:rank:kind"),
        ("lunch:1:0:hang", "'lunch' is none of load, partition"),
        ("exchange:1:0:sulk", "'sulk' is none of raise, exit"),
    ],
)
def test_other_descriptions_are_refused(text: str, told: str) -> None:
    with pytest.raises(UserError, match=f"{VARIABLE} is '{text}': .*{told}"):
        parse(text)


def entered(name: str) -> list[str]:
    return [phase for phase, belongs in PHASES.items() if belongs(name)]


def test_phases_are_found_by_the_names_that_are_entered() -> None:
    assert entered("reading scores.csv") == ["load"]
    assert entered("repartition") == ["partition", "exchange"]
    assert entered("gradient") == entered("evaluate") == ["evaluate"]
    assert entered("writing the checkpoint run.ck") == entered("writing fig1.partial.h5") == ["checkpoint"]
    assert entered("writing the result") == entered("writing fig1.h5") == ["write"]
    assert entered("reading the checkpoint run.ck") == entered("after reading scores.csv") == []


def test_the_count_the_phase_and_the_rank_must_be_right() -> None:
    clock = PhaseClock()
    with faults(0, {VARIABLE: "reduce:3:0:raise"}):
        for _ in range(2):
            with clock("exchange"), clock("reduce"):
                pass
        with pytest.raises(RuntimeError, match="a fault on purpose"), clock("reduce"):
            raise AssertionError("not reached")
        with clock("reduce"):
            pass
    with faults(0, {VARIABLE: "reduce:1:1:raise"}), clock("reduce"):
        pass


def test_a_fault_inside_together_is_one_of_the_phase() -> None:
    with (
        faults(0, {VARIABLE: "load:1:0:exit"}),
        pytest.raises(UserError, match="reading x.csv failed: SystemExit: 0"),
        together(SerialComm(), "reading x.csv"),
    ):
        raise AssertionError("not reached")


@pytest.mark.parametrize(("kind", "told"), [("full", "the disk is full"), ("readonly", "is read-only")])
def test_disks_fail_from_then_on_and_only_until_the_end(tmp_path: Path, kind: str, told: str) -> None:
    fsync, opened = os.fsync, os.open
    with faults(0, {VARIABLE: f"reduce:1:0:{kind}"}):
        write_whole(tmp_path / "before", b"1")
        with PhaseClock()("reduce"):
            pass
        for _ in range(2):
            with pytest.raises(UserError, match=told):
                write_whole(tmp_path / "after", b"1")
    assert (os.fsync, os.open) == (fsync, opened)
    write_whole(tmp_path / "afterwards", b"1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["afterwards", "before"]


def test_a_command_leaves_no_listener(here: Here, data: Path) -> None:
    assert runtime._listeners.get() == ()
    assert here(data, "--label", "y", "--quiet").returncode == 0
    assert runtime._listeners.get() == ()


# --- jobs


@pytest.fixture
def harness(mpirun: Mpirun, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that makes the harness of the script, with no limit of time that a busy machine could miss."""
    launcher = _mpiexec()
    if launcher is None or not os.path.isdir("/proc/self"):
        pytest.skip("faults need mpiexec, and /proc for the list of processes")
    monkeypatch.syspath_prepend(REPOSITORY / "scripts")
    made: Any = importlib.import_module("faults").Harness
    return lambda **options: made(launcher=[launcher], limit=60.0, **options)


@pytest.mark.parametrize(
    ("command", "fault", "codes", "named"),
    [
        # An error inside what is agreed on, and one where a rank is alone with it.
        ("estimate", Fault("load", 2, 2, "raise"), {2}, True),
        ("learn", Fault("reduce", 5, 0, "raise"), {1}, True),
        ("learn", Fault("evaluate", 9, 1, "exit"), {1}, True),
        ("estimate", Fault("exchange", 4, 1, "kill"), {9, 137}, False),
        ("learn", Fault("checkpoint", 2, 0, "kill"), {9, 137}, False),
        ("estimate", Fault("checkpoint", 2, 0, "full"), {2}, True),
        ("estimate", Fault("evaluate", 5, 1, "hang"), {1}, False),
        ("learn", Fault("partition", 7, 2, "stop"), {1}, False),
    ],
    ids=str,
)
def test_a_job_ends_as_one(
    harness: Callable[..., Any], command: str, fault: Fault, codes: set[int], named: bool
) -> None:
    outcome = harness(n_ranks=3, timeout=1.0, resume=False).run(command, fault)
    assert outcome.wrong == [], outcome.output
    assert outcome.code in codes
    assert outcome.named or not named


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_jobs_end_as_one_whatever_fails_wherever(harness: Callable[..., Any]) -> None:
    made = harness(n_ranks=4)
    outcomes = [made.run(*drawn) for drawn in made.draw(200, seed=0)]
    assert {each.fault.kind for each in outcomes} == set(KINDS)
    assert {each.fault.phase for each in outcomes} == set(PHASES)
    for each in outcomes:
        assert each.wrong == [], (each.command, each.fault, each.output)


# --- the watchdog


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit codes with which a watchdog would have ended the job."""
    found: list[int] = []
    monkeypatch.setattr(hang_detection, "end_job", lambda comm, code: found.append(code))
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *_, **__: None)
    return found


def spoken(ends: list[int], capfd: pytest.CaptureFixture[str]) -> str:
    """Wait until the watchdog has ended the job; return what it has said."""
    deadline = time.monotonic() + 60
    while not ends and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ends[:1] == [1]
    out, err = capfd.readouterr()
    assert out == ""
    return err.splitlines()[0]


def test_a_process_that_hangs_says_where(ends: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    with watched(SerialComm(), 0.1), PhaseClock()("evaluate"):
        told = spoken(ends, capfd)
    where = r"\(test_faults.py, line \d+, in spoken\)"
    why = "give a longer --timeout if it needs longer"
    assert re.fullmatch(f"mpi-ustat: no progress for 0.1 s in phase 'evaluate' {where}: {why}", told)


def test_a_rank_that_waits_says_so(ends: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    # Without a frame, as MPI's.
    comm = SimpleNamespace(rank=2, size=4, allgather=functools.partial(time.sleep, 0.6))
    with watched(comm, 0.1):
        entering("after reading x.csv")
        comm.allgather()
        told = spoken(ends, capfd)
    where = r"\(test_faults.py, line \d+, in test_a_rank_that_waits_says_so\)"
    why = "it waits for other ranks, of which one hangs, or a host or a link is dead"
    assert re.fullmatch(f"mpi-ustat: no progress for 0.1 s on rank 2 after reading x.csv {where}: {why}", told)


def test_a_job_that_makes_progress_is_left_alone(ends: list[int]) -> None:
    """Its phases take longer together than each may alone."""
    clock = PhaseClock()
    with watched(SerialComm(), 1.0):
        for _ in range(6):
            with clock("evaluate"):
                time.sleep(0.2)
    assert ends == []


def test_code_that_keeps_pythons_lock_is_ended_too(mpirun: Mpirun, data: Path) -> None:
    env = {VARIABLE: "reduce:1:0:hold"}
    words = ["estimate", data, "--label", "y", "--rounds", 1, "--timeout", 0.5]
    done = mpirun(0, *words, timeout=30, program=FAULTY, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Timeout (")
    assert " in _hold\n" in done.stderr


def test_a_watchdog_goes_with_its_context() -> None:
    with watched(SerialComm(), 60.0):
        assert any(thread.name == "watchdog" for thread in threading.enumerate())
        assert len(runtime._listeners.get()) == 1
    assert not any(thread.name == "watchdog" for thread in threading.enumerate())
    assert runtime._listeners.get() == ()
    with pytest.raises(ZeroDivisionError), watched(SerialComm(), 60.0):
        raise ZeroDivisionError
    assert runtime._listeners.get() == ()
    with watched(SerialComm(), 0.0):
        assert runtime._listeners.get() == ()


def test_faulthandler_is_armed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    armed: list[float] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: armed.append(seconds))
    clock = PhaseClock()
    with watched(SerialComm(), 100.0):
        for _ in range(1000):
            with clock("step"):
                pass
    assert armed == [pytest.approx(110.5)]


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "1e+09"])
def test_other_timeouts_are_refused(here: Here, data: Path, seconds: str) -> None:
    assert f"the timeout is {seconds} s: give a number of seconds, 0 for none" in refusal(
        here(data, "--label", "y", "--timeout", seconds)
    )


# --- files that a killed process leaves

KILLED_WHILE_WRITING = """\
import os, signal, sys
from mpi_ustat.storage import files
if "named" in sys.argv:
    del os.O_TMPFILE
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
files.write_whole(sys.argv[1], b"x" * 10**6, overwrite=True)
"""


def killed_while_writing(target: Path, *how: str) -> None:
    search = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPOSITORY)]))
    words = [sys.executable, "-c", KILLED_WHILE_WRITING, str(target), *how]
    assert subprocess.run(words, env=os.environ | {"PYTHONPATH": search}).returncode == -signal.SIGKILL


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_killed_write_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "run.ck"
    target.write_text("as before")
    killed_while_writing(target)
    if left_aside(tmp_path):
        pytest.skip("this file system has no files without names")
    assert names(tmp_path) == ["run.ck"]
    assert target.read_text() == "as before"


def test_what_a_killed_write_leaves_elsewhere_the_next_one_removes(tmp_path: Path) -> None:
    target, other = tmp_path / "run.ck", tmp_path / "other.ck"
    killed_while_writing(target, "named")
    killed_while_writing(other, "named")
    assert [used for _, used in left_aside(tmp_path)] == [False, False]
    assert len(names(tmp_path)) == 2
    (of_other,) = [path for path, _ in left_aside(tmp_path) if f"-{files._digest(other)}-" in path.name]
    write_whole(target, b"whole")
    assert names(tmp_path) == sorted(["run.ck", of_other.name])


def test_what_others_write_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "run.ck"
    own, host = files._digest(target), os.uname().nodename[:64]
    mine = tmp_path / f".mpi_ustat-{own}-{host}-{os.getpid()}-00000000.part"
    another = tmp_path / f".mpi_ustat-{own}-{host}x-{os.getpid()}-00000000.part"
    unlike = tmp_path / ".mpi_ustat-notes.part"
    for path in (mine, another, unlike):
        path.touch()
    assert dict(left_aside(tmp_path)) == {mine: True, another: None}
    write_whole(target, b"whole")
    assert names(tmp_path) == sorted(["run.ck", mine.name, another.name, unlike.name])
    assert left_aside(tmp_path / "nowhere") == []
