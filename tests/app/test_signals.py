"""Signals to commands: while they start, while they work; Ctrl-C is nobody's mistake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from commands import write_csv
from conftest import Mpirun
from test_checkpoint import OPTIONS, curves, learnt
from test_checkpoint import some_rows as rows_to_learn_from

from mpi_ustat.app.exit_codes import INTERRUPTED, STOPPED
from mpi_ustat.estimation import rounds
from mpi_ustat.learning import descent
from mpi_ustat.learning.monitoring import Monitor
from mpi_ustat.storage.results import load

Here = Callable[..., CompletedProcess[str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "data.csv", rows_to_learn_from(), "a,b,c,y")


@pytest.fixture(params=["raised", "sent"])
def interrupt(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Return what interrupts: an exception of a user's code, or a signal."""

    def do() -> None:
        if request.param == "raised":
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield do
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def at_call(number: int, original: Callable[..., Any], interrupt: Callable[[], None]) -> Callable[..., Any]:
    """Return a function that interrupts the first time that it is called for the `number`-th time."""
    calls = []

    def function(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            interrupt()
        return original(*arguments, **options)

    return function


@pytest.mark.parametrize(("call", "reached"), [(1, 0), (7, 2)])
def test_an_interrupted_estimate_goes_on_to_the_same_bits(
    here: Here,
    tmp_path: Path,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: Callable[[], None],
    call: int,
    reached: int,
) -> None:
    """In a round: those before it are kept."""
    words = ["estimate", data, "--label", "y", "--columns", "a", "--workers", 3, "--rounds", 5, "--seed", 1, "--json"]
    whole = json.loads(here(*words).stdout)
    file = tmp_path / "run.ck"
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "of_worker", at_call(call, rounds.of_worker, interrupt))
        done = here(*words, "--checkpoint", file, "--output", tmp_path / "out.h5")
    assert (done.returncode, done.stdout) == (INTERRUPTED, "")
    assert done.stderr == f"mpi-ustat: interrupted at round {reached}, checkpoint in {file}: go on with --resume\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "run.ck"]
    resumed = json.loads(here(*words, "--checkpoint", file, "--resume").stdout)
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0}


@pytest.mark.parametrize(
    ("home", "method", "call"),
    [(descent, "add_gradients", 10), (Monitor, "_loss_and_auc", 5), (Monitor, "_loss_and_auc", 1)],
    ids=["in a step, repartitioned just before", "in an evaluation", "in the first evaluation"],
)
def test_an_interrupted_descent_goes_on_to_the_same_bits(
    here: Here,
    tmp_path: Path,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: Callable[[], None],
    home: Any,
    method: str,
    call: int,
) -> None:
    words = ["learn", data, *OPTIONS, "--iterations", 20, "--json", "--workers", 9, "--scheme", "swor"]
    words += ["--empty", "skip"]
    whole = here(*words, "--output", tmp_path / "whole.h5")
    assert json.loads(whole.stdout)["empty_workers"] > 0
    file = tmp_path / "run.ck"
    with monkeypatch.context() as patch:
        patch.setattr(home, method, at_call(call, getattr(home, method), interrupt))
        done = here(*words, "--checkpoint", file)
    assert (done.returncode, done.stdout) == (INTERRUPTED, "")
    assert done.stderr.startswith("mpi-ustat: interrupted at iteration ")
    resumed = here(*words, "--checkpoint", file, "--resume", "--output", tmp_path / "resumed.h5")
    assert learnt(resumed) == learnt(whole)
    assert json.loads(resumed.stdout)["empty_workers"] == json.loads(whole.stdout)["empty_workers"]
    assert curves(tmp_path / "resumed.h5") == curves(tmp_path / "whole.h5")


def test_an_interrupt_without_a_checkpoint_leaves_nothing(
    here: Here, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]
) -> None:
    monkeypatch.setattr(rounds, "of_worker", at_call(2, rounds.of_worker, interrupt))
    done = here("estimate", data, "--label", "y", "--columns", "a", "--output", tmp_path / "out.h5", "--rounds", 3)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "mpi-ustat: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_an_interrupt_while_the_result_is_made_keeps_the_rounds(
    here: Here, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["estimate", data, "--label", "y", "--columns", "a", "--rounds", 3, "--checkpoint", tmp_path / "run.ck"]
    with monkeypatch.context() as patch:

        def interrupted(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr("mpi_ustat.app.result_output.save", interrupted)
        assert here(*words, "--output", tmp_path / "out.h5").returncode == INTERRUPTED
    assert int(load(tmp_path / "run.ck").datasets["round"].values) == 3


# --- in ranks, and while they start

SIGNALLED = """\
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.argv[2] == "ignored":
    signal.signal(int(sys.argv[1]), signal.SIG_IGN)
from mpi_ustat.app.signals import hold
hold()
if sys.argv[2] != "kernel" and os.environ.get("PMI_RANK", "1") == "1":
    os.kill(os.getpid(), int(sys.argv[1]))
from mpi_ustat.app import cli
from mpi_ustat.estimation.estimation import Estimation

number, when = int(sys.argv.pop(1)), sys.argv.pop(1)
step = Estimation.step

def signalled(self):
    comm = self.problem.comm
    if when == "kernel" and len(self.state.rounds) == 1 and comm.rank == comm.size - 1:
        os.kill(os.getpid(), number)
    return step(self)

Estimation.step = signalled
cli.console()
"""

ROUNDS = ["--label", "y", "--columns", "a", "--workers", 3, "--rounds", 4, "--quiet"]


@pytest.mark.parametrize(
    ("n_ranks", "number", "when", "checkpoint", "code"),
    [
        (2, signal.SIGUSR1, "start", True, STOPPED),
        (0, signal.SIGTERM, "start", True, STOPPED),
        (0, signal.SIGTERM, "start", False, -signal.SIGTERM),
        (2, signal.SIGINT, "start", False, INTERRUPTED),
        (2, signal.SIGINT, "kernel", True, INTERRUPTED),
        (0, signal.SIGHUP, "start", False, -signal.SIGHUP),
        (0, signal.SIGHUP, "kernel", False, -signal.SIGHUP),
        (2, signal.SIGHUP, "kernel", True, STOPPED),
        (0, signal.SIGHUP, "ignored", True, 0),
    ],
)
def test_a_signal_to_one_rank(
    mpirun: Mpirun, tmp_path: Path, data: Path, n_ranks: int, number: int, when: str, checkpoint: bool, code: int
) -> None:
    pytest.importorskip("mpi4py.MPI")
    file = tmp_path / "run.ck"
    more = ["--checkpoint", file] if checkpoint else []
    done = mpirun(n_ranks, int(number), when, "estimate", data, *ROUNDS, *more, program=("-c", SIGNALLED))
    assert done.returncode == code, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("mpi-ustat: ")]
    if code in (STOPPED, INTERRUPTED):
        assert done.stdout == "" and "Traceback" not in done.stderr
        assert [line.split(" at ")[0] for line in told] == [
            "mpi-ustat: stopped" if code == STOPPED else "mpi-ustat: interrupted"
        ]
    elif code != 0:
        assert (done.stdout, done.stderr) == ("", "")  # UCX would tell what it thinks of SIGHUP
    assert file.exists() == (code == STOPPED or (checkpoint and code == INTERRUPTED))


LEFT = """\
import os, re, sys
from mpi_ustat.app import cli
from mpi_ustat.estimation.estimation import Estimation

step = Estimation.step

def looking(self):
    names = re.findall(r"/dev/shm/mpich_shm_\\w+$", open("/proc/self/maps").read(), re.M)
    print("memory:", len(names), file=sys.stderr)
    return step(self)

Estimation.step = looking
cli.console()
"""


def test_a_second_interrupt_while_it_leaves_is_no_traceback(tmp_path: Path) -> None:
    """Raised where a command says that it is interrupted."""
    program = """
import sys
from mpi_ustat.app import cli

def interrupt(*_):
    raise KeyboardInterrupt

cli._run = cli._complain = interrupt
cli.console()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


def test_ranks_that_are_killed_leave_no_shared_memory(mpirun: Mpirun, data: Path) -> None:
    """Whoever is killed once the work has begun, and whoever is ended by an abort."""
    pytest.importorskip("mpi4py.MPI")
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("what is shared is read from /proc")
    done = mpirun(2, "estimate", data, *ROUNDS, program=("-c", LEFT))
    assert done.returncode == 0, done.stderr
    assert re.findall(r"memory: (\d+)", done.stderr) == ["0"] * 2 * 4


def test_files_of_no_process_are_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_ustat.app import environment_checks, job_leftovers
    from mpi_ustat.mpi.runtime import SerialComm

    monkeypatch.setattr(job_leftovers, "_KNOWN", {tmp_path: re.compile("mpich_shm_|hydra_")})
    assert (job_leftovers.stale_files(), environment_checks.shared_memory(SerialComm())) == ([], [])
    for name in ("mpich_shm_1_0", "hydra_2", "mpich_shm_3_0", "others"):
        (tmp_path / name).write_text("x" * 9)
    user = subprocess.Popen(["sleep", "60"], stdin=open(tmp_path / "hydra_2"))  # noqa: SIM115
    try:
        assert {path.name for path in job_leftovers.stale_files()} == {"mpich_shm_1_0", "mpich_shm_3_0"}
    finally:
        user.kill()
        user.wait()
    (found,) = environment_checks.shared_memory(SerialComm())
    assert found.found.startswith(f"3 files on {os.uname().nodename}, which no process uses: remove ")
    assert f"{tmp_path}/hydra_2" in found.found and found.problem == ""
    monkeypatch.setattr(environment_checks, "SHARED", tmp_path)
    monkeypatch.setattr(environment_checks, "_MOST_LEFT", 0.0)
    assert "remove them" in environment_checks.shared_memory(SerialComm())[0].problem
