"""Ranks that act as one: ownership of workers, failing together, the launcher's check, the clock."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from operator import floordiv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.interrupts import deferred, is_of_all
from mpi_ustat.mpi.launch import (
    check_before_start,
    check_launcher,
    cores_of_ranks_here,
    launched_size,
    leave_together,
    mpi_obstacle,
    own_cores,
    ranks_on_this_host,
    world,
)
from mpi_ustat.mpi.runtime import (
    PhaseClock,
    SerialComm,
    agree,
    attempt,
    entering,
    hosted_workers,
    listening,
    locally,
    succeed,
    succeed_with_most,
    together,
)


class _Chorus(SerialComm):
    """A communicator as one rank sees it when the others' outcomes are given."""

    def __init__(self, rank: int, others: list[Any]) -> None:
        self.rank = rank
        self.size = len(others)
        self._others = others

    def allgather(self, obj: Any) -> list[Any]:
        return [obj if rank == self.rank else other for rank, other in enumerate(self._others)]


# --- who hosts which worker


@given(n_workers=st.integers(0, 3000), size=st.integers(1, 200))
def test_workers_are_cut_into_contiguous_runs_of_nearly_equal_length(n_workers: int, size: int) -> None:
    runs = [hosted_workers(n_workers, size, rank) for rank in range(size)]
    assert [worker for run in runs for worker in run] == list(range(n_workers))
    lengths = [len(run) for run in runs]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


def test_as_many_workers_as_ranks_gives_each_its_own() -> None:
    assert [list(hosted_workers(4, 4, rank)) for rank in range(4)] == [[0], [1], [2], [3]]


# --- failing together

FAILING_RANKS: dict[str, Callable[[int], set[int]]] = {
    "first": lambda size: {0},
    "last": lambda size: {size - 1},
    "all": lambda size: set(range(size)),
}


@pytest.mark.parametrize("failing", FAILING_RANKS)
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UserError("the file has no column 'f12'"), "the file has no column 'f12'"),
        (ValueError("bad value"), "ValueError: bad value"),
        (ValueError("first line\nsecond line"), "ValueError: first line"),
        (ValueError(), "ValueError"),
        (KeyError("f12"), "KeyError: 'f12'"),
        (MemoryError(), "MemoryError"),
        (SystemExit(3), "SystemExit: 3"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_on_some_ranks_is_raised_on_all(comm: Any, failing: str, error: BaseException, text: str) -> None:
    ranks = FAILING_RANKS[failing](comm.size)
    entered = []
    with pytest.raises(UserError) as caught, together(comm, "reading the data"):
        entered.append(True)
        if comm.rank in ranks:
            raise error
    assert entered == [True]

    everywhere = len(ranks) == comm.size
    if everywhere and isinstance(error, UserError):
        expected = text
    else:
        where = "" if everywhere else f" on rank {min(ranks)}"
        expected = f"reading the data failed{where}: {text}"
    assert str(caught.value) == expected
    shown = comm.rank in ranks and not isinstance(error, UserError)  # whose sentence is told already
    assert caught.value.__cause__ is (error if shown else None)
    assert comm.allgather(str(caught.value)) == [expected] * comm.size


@pytest.mark.parametrize("failing", FAILING_RANKS)
@pytest.mark.parametrize("how", ["together", "attempt"])
def test_an_interrupt_of_one_rank_is_one_of_all(comm: Any, failing: str, how: str) -> None:
    """Even where another rank makes a mistake at the same time."""

    def work() -> None:
        if comm.rank in FAILING_RANKS[failing](comm.size):
            raise KeyboardInterrupt
        raise UserError("something else is wrong here")

    with pytest.raises(KeyboardInterrupt) as caught:
        if how == "together":
            with together(comm, "reading the data"):
                work()
        else:
            attempt(comm, work, "reading the data")
    assert is_of_all(caught.value)
    assert comm.allgather(None) == [None] * comm.size


@pytest.fixture
def by_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a program whose interrupts are Python's, which they may not be where tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_work_that_others_hear_of(comm: Any, by_signals: None) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), deferred():
        if comm.rank == comm.size - 1:
            signal.raise_signal(signal.SIGINT)
        done.append("collective")
        assert comm.allgather(1) == [1] * comm.size
        with together(comm, "working"):
            done.append("worked")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # The interrupted rank has not begun what the others have done for nothing.
    assert done == ["collective"] + ["worked"] * (comm.rank < comm.size - 1)
    assert attempt(comm, lambda: "fine", "working") == ("fine", ["fine"] * comm.size)


def test_an_interrupt_in_local_work_comes_at_once(comm: Any, by_signals: None) -> None:
    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt) as caught, deferred():
        attempt(comm, work, "working")
    assert is_of_all(caught.value)


def test_a_second_interrupt_does_not_wait_and_one_that_is_left_comes_at_the_end(by_signals: None) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("first")
        signal.raise_signal(signal.SIGINT)
        done.append("second")
    assert done == ["first"]
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("end")
    assert done == ["first", "end"]
    with deferred():
        assert locally(lambda: 1) == (None, 1)


FORKING = """\
import os, sys
from mpi_ustat.mpi.runtime import SerialComm, together
with together(SerialComm(), "working"):
    if os.fork() == 0:
        exec(sys.argv[1])
os.wait()
print("parent", flush=True)
"""


@pytest.mark.parametrize(
    ("leaves", "told"),
    [("sys.exit(0)", ""), ("pass", ""), ("raise ValueError('child')", "ValueError: child"), ("sys.exit('x')", "")],
)
def test_a_forked_child_takes_part_in_nothing(leaves: str, told: str) -> None:
    command = [sys.executable, "-c", FORKING, leaves]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "parent\n"), done.stderr
    assert told in done.stderr and bool(done.stderr) == bool(told)


def test_the_lowest_failing_rank_is_named_when_errors_differ(comm: Any) -> None:
    with pytest.raises(UserError) as caught, together(comm, "evaluating the kernel"):
        if comm.rank > 0 or comm.size == 1:
            raise ZeroDivisionError(f"worker of rank {comm.rank}")
    if comm.size == 1:
        assert str(caught.value) == "evaluating the kernel failed: ZeroDivisionError: worker of rank 0"
    else:
        assert str(caught.value) == "evaluating the kernel failed on rank 1: ZeroDivisionError: worker of rank 1"


def test_ranks_that_all_fail_but_differently_say_where() -> None:
    mine = UserError("row 3 holds a NaN")
    comm = _Chorus(1, [((True, "", "row 1 holds a NaN"), None), None])
    with pytest.raises(UserError, match=r"^reading failed on rank 0: row 1 holds a NaN$"):
        agree(comm, mine, doing="reading")


def test_nothing_happens_when_nothing_fails(comm: Any) -> None:
    done = []
    with together(comm, "writing"):
        done.append(comm.rank)
    assert done == [comm.rank]


def test_agree_returns_the_values_in_rank_order(comm: Any) -> None:
    assert agree(comm, None, comm.rank * 10, doing="counting") == [rank * 10 for rank in range(comm.size)]


def test_an_attempt_keeps_what_it_finds_and_shares_a_part(comm: Any) -> None:
    found, of_ranks = attempt(comm, lambda: [comm.rank] * 3, "counting", share=sum)
    assert found == [comm.rank] * 3
    assert of_ranks == [3 * rank for rank in range(comm.size)]
    where = "" if comm.size == 1 else " on rank 0"
    with pytest.raises(UserError, match=f"^sharing failed{where}: ZeroDivisionError"):
        attempt(comm, lambda: comm.rank, "sharing", share=lambda rank: 1 // rank)
    error, nothing = locally(lambda: 1 // 0)
    assert isinstance(error, ZeroDivisionError) and nothing is None


def test_success_is_told_with_the_largest_number(comm: Any) -> None:
    assert succeed(comm, lambda: [comm.rank], "counting") == [comm.rank]
    assert succeed_with_most(comm, lambda: [comm.rank], len, "counting") == ([comm.rank], 1)
    found, most = succeed_with_most(comm, lambda: comm.rank, lambda rank: -3 - rank, "counting")
    assert (found, most) == (comm.rank, -3)
    for fails in range(comm.size):
        where = "" if comm.size == 1 else f" on rank {fails}"
        with pytest.raises(UserError, match=f"^counting failed{where}: ZeroDivisionError"):
            succeed(comm, functools.partial(floordiv, 1, comm.rank - fails), "counting")
        with pytest.raises(UserError, match=f"^counting failed{where}: ZeroDivisionError"):
            succeed_with_most(
                comm, functools.partial(int, comm.rank != fails), functools.partial(floordiv, 1), "counting"
            )
        assert succeed_with_most(comm, lambda: 2**62, lambda found: found, "going on") == (2**62, 2**62)


def test_agreement_can_follow_a_failure(comm: Any) -> None:
    with pytest.raises(UserError), together(comm, "reading"):
        if comm.rank == comm.size - 1:
            raise OSError("gone")
    assert agree(comm, None, comm.rank, doing="reading again") == list(range(comm.size))


# --- who is told of phases


def test_listeners_hear_of_every_phase_while_they_listen(comm: Any) -> None:
    heard: list[str] = []
    clock = PhaseClock()
    with listening(heard.append):
        entering("one")
        with clock("two"), together(comm, "three"):
            assert heard == ["one", "two", "three"]
        agree(comm, None, doing="four")
    assert heard == ["one", "two", "three", "after three", "after four"]
    entering("five")
    with clock("six"), together(comm, "seven"):
        pass
    assert len(heard) == 5


def test_what_a_listener_raises_is_raised_where_the_phase_is_entered(comm: Any) -> None:
    def refuse(phase: str) -> None:
        if phase == "reading" and comm.rank == comm.size - 1:
            raise OSError("gone")

    where = f" on rank {comm.size - 1}" if comm.size > 1 else ""
    with (
        listening(refuse),
        pytest.raises(UserError, match=f"^reading failed{where}: OSError: gone$"),
        together(comm, "reading"),
    ):
        assert comm.rank != comm.size - 1
    assert comm.allgather(None) == [None] * comm.size


# --- leaving together


@pytest.mark.parametrize("patience", [None, 60.0])
def test_ranks_that_all_come_leave_with_the_code(comm: Any, patience: float | None) -> None:
    assert leave_together(comm, 3, patience=patience) == 3


class _Alone(SerialComm):
    """One of two ranks, of which the other doesn't come."""

    size = 2

    def __init__(self) -> None:
        self.aborted: list[int] = []

    def Ibarrier(self) -> Any:
        return SimpleNamespace(Test=lambda: bool(self.aborted))

    def Abort(self, errorcode: int = 0) -> None:
        self.aborted.append(errorcode)


@pytest.mark.parametrize(("code", "aborted"), [(2, 2), (0, 1)])
def test_a_rank_that_leaves_alone_ends_the_job_never_with_success(code: int, aborted: int) -> None:
    comm = _Alone()
    leave_together(comm, code, patience=0.01)
    assert comm.aborted == [aborted]


# --- no MPI


def test_a_process_alone_needs_no_mpi() -> None:
    comm = SerialComm()
    value = object()
    assert (comm.rank, comm.size) == (0, 1)
    assert comm.bcast(value) is value
    assert comm.gather(value) == comm.allgather(value) == [value]
    comm.barrier()


def test_aborting_a_process_alone_ends_it_with_the_code() -> None:
    code = "from mpi_ustat.mpi.runtime import SerialComm; SerialComm().Abort(7); print('still here')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (7, "")


NO_MPI = "import sys; sys.modules['mpi4py'] = None; from mpi_ustat.mpi.launch import world; print(world().size)"


def _without_mpi(**announced: str) -> subprocess.CompletedProcess[str]:
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | announced
    return subprocess.run(
        [sys.executable, "-c", NO_MPI], capture_output=True, text=True, timeout=60, check=False, env=environ
    )


def test_the_world_is_this_process_where_no_mpi_can_be_loaded() -> None:
    done = _without_mpi()
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_several_processes_without_mpi_are_refused() -> None:
    done = _without_mpi(PMI_SIZE="4", PMI_RANK="2")
    assert done.returncode != 0
    assert "no MPI library can be loaded" in done.stderr.splitlines()[-1]


@pytest.mark.launched
def test_the_world_of_this_run_has_the_size_that_was_launched() -> None:
    assert world().size == launched_size()[0]


# --- the launcher


@pytest.mark.parametrize(
    ("environ", "launched"),
    [
        ({}, (1, 0)),
        ({"PMI_SIZE": "4", "PMI_RANK": "3"}, (4, 3)),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, (2, 1)),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5"}, (8, 5)),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, (1, 0)),  # a batch script: not started by srun
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "PMI_SIZE": "4", "PMI_RANK": "2"}, (4, 2)),
        ({"PMI_SIZE": "", "OMPI_COMM_WORLD_SIZE": "many"}, (1, 0)),
        ({"PMI_SIZE": "4", "PMI_RANK": "x"}, (1, 0)),
        ({"PMI_SIZE": "4"}, (4, 0)),
    ],
)
def test_what_the_launcher_announced(environ: dict[str, str], launched: tuple[int, int]) -> None:
    assert launched_size(environ) == launched


@pytest.mark.parametrize("name", ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_processes_that_do_not_find_each_other_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"started 3 processes but MPI sees 1\b.*mpiexec") as caught:
        check_launcher(SimpleNamespace(size=1), {name: "3"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [2, 3])
def test_processes_that_find_each_other_pass(size: int) -> None:
    check_launcher(SimpleNamespace(size=size), {"PMI_SIZE": str(size)})


@pytest.mark.parametrize("environ", [{}, {"PMI_SIZE": "1"}])
def test_one_process_passes(environ: dict[str, str]) -> None:
    check_launcher(SimpleNamespace(size=1), environ)


MPICH = "MPICH Version: 5.0.2\nMPICH configure: --with-device=ch4:ucx,ofi --with-pm=hydra:gforker"
OF_OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "x@1", "PMIX_RANK": "1"}


@pytest.mark.parametrize(
    ("version", "environ", "told"),
    [
        (
            MPICH,
            OF_OPEN_MPI,
            "Open MPI's mpiexec has started this, but mpi4py loads MPICH: use the mpiexec that",
        ),
        (MPICH, OF_OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1"}, "Open MPI's mpiexec has started this"),
        (MPICH, {"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "4"}, "a launcher that speaks PMIx has started this, but"),
        (MPICH, OF_OPEN_MPI | {"PMI_SIZE": "2", "PMI_FD": "9"}, "unset PMIX_NAMESPACE PMIX_RANK"),
        (MPICH, {}, ""),
        (MPICH, {"PMI_SIZE": "4", "PMI_RANK": "1"}, ""),
        (MPICH + " --with-pmix=/usr", {"PMIX_RANK": "0"}, ""),
        (MPICH, {"PMI_SIZE": "4", "PMI_FD": "987"}, "PMI_FD=987 is no connection to a launcher"),
        ("Open MPI v5.0.11", OF_OPEN_MPI, ""),
        ("Open MPI v5.0.11", {"PMI_SIZE": "1", "PMI_RANK": "0"}, "mpiexec of MPICH or Intel MPI has started this, but"),
        ("Open MPI v4.1.4", {"PMI_SIZE": "2", "PMI_RANK": "0", "SLURM_PROCID": "0"}, ""),
    ],
)
def test_a_launcher_that_a_library_does_not_survive_is_refused_before_it_starts(
    version: str, environ: dict[str, str], told: str
) -> None:
    if not told:
        check_before_start(version, environ)
        return
    with pytest.raises(UserError) as caught:
        check_before_start(version, environ)
    assert told in str(caught.value) and "\n" not in str(caught.value)


# --- the clock


def _ticking(*times: float) -> Callable[[], float]:
    remaining = iter(times)
    return lambda: next(remaining)


def test_the_clock_adds_up_the_visits_to_a_phase() -> None:
    clock = PhaseClock(now=_ticking(0, 2, 10, 11, 20, 23))
    for phase in ("read", "move", "read"):
        with clock(phase):
            pass
    assert clock.seconds == {"read": 5, "move": 1}


def test_the_clock_counts_a_phase_that_raises() -> None:
    clock = PhaseClock(now=_ticking(1, 4))
    with pytest.raises(OSError, match="gone"), clock("read"):
        raise OSError("gone")
    assert clock.seconds == {"read": 3}


def test_the_slowest_rank_of_each_phase(comm: Any) -> None:
    clock = PhaseClock()
    clock.seconds = {"read": 1.0 + comm.rank, "move": 5.0 - comm.rank}
    if comm.rank == comm.size - 1:
        clock.seconds["write"] = 0.5
    assert clock.slowest(comm) == {"read": float(comm.size), "move": 5.0, "write": 0.5}


# --- the host


def test_ranks_on_this_host_agree_with_the_hosts_of_all(comm: Any) -> None:
    hosts = comm.allgather(os.uname().nodename)
    assert ranks_on_this_host(comm) == hosts.count(os.uname().nodename) >= 1


def test_cores_are_counted_once_and_on_this_host_only(comm: Any) -> None:
    here, own = os.uname().nodename, own_cores()
    assert own and len(set(own)) == len(own)
    assert len(own) <= cores_of_ranks_here(comm) <= (os.cpu_count() or 1)
    others = [None, (here, own), (here, [10**6]), ("other", [10**6 + 1])]
    assert cores_of_ranks_here(_Chorus(0, others)) == len(own) + 1


def test_a_socket_or_pipe_is_a_connection_and_a_file_is_none(tmp_path: Path) -> None:
    near, far = os.pipe()
    with open(tmp_path / "file", "w") as file:
        check_before_start(MPICH, {"PMI_FD": str(near)})
        os.close(near)
        os.close(far)
        for number in (file.fileno(), near):
            with pytest.raises(UserError, match="is no connection to a launcher"):
                check_before_start(MPICH, {"PMI_FD": str(number)})


def test_an_mpi_that_can_be_loaded_is_no_obstacle() -> None:
    pytest.importorskip("mpi4py.MPI")
    assert mpi_obstacle() == ""


def test_ranks_on_other_hosts_are_not_counted() -> None:
    here = os.uname().nodename
    assert ranks_on_this_host(_Chorus(1, [here, here, here + "x", "other"])) == 2
