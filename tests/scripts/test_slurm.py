"""Jobs of a real SLURM, as `mpi-ustat batch slurm` writes them. `scripts/test_cluster.sh slurm` starts one for them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from commands import some_rows, write_csv
from conftest import REPOSITORY, SIZE, WORLD, Mpirun, scrubbed_environment

from mpi_ustat.mpi.launch import library_version
from mpi_ustat.storage.results import load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Here = Callable[..., CompletedProcess[str]]

COMMAND = ("batch", "slurm")

ENDED = {"CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}

PROGRAM = """\
#!{python}
import os, time
from mpi_ustat.app.cli import console
from mpi_ustat.learning.descent import Learning

run = Learning.run

def slowly(self, until=None):
    for record in run(self, until):
        time.sleep(1)
        yield record

if "SLOWLY" in os.environ:
    Learning.run = slowly
console()
"""
"""`mpi-ustat` from this tree; with SLOWLY in the environment, a second passes after every evaluation."""


@dataclass(frozen=True)
class Slurm:
    """Submits jobs from a folder, where a program `mpi-ustat` and the launcher of the tests' MPI are on the PATH."""

    folder: Path
    environment: dict[str, str]

    def call(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def submit(self, script: str) -> str:
        assert script
        (self.folder / "job.sh").write_text(script)
        return self.call("sbatch", "--parsable", "--output=log-%A_%a", "job.sh").strip()

    def states(self, job: str) -> list[dict[str, str]]:
        """Return what SLURM knows of a job, for each task of an array."""
        lines = self.call("scontrol", "--oneliner", "show", "job", job).splitlines()
        return [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines if line]

    def ended(self, job: str, patience: float = 120) -> list[dict[str, str]]:
        """Return the same once the job is over."""
        deadline = time.monotonic() + patience
        while True:
            states = self.states(job)
            if all(state["JobState"] in ENDED for state in states):
                return states
            assert time.monotonic() < deadline, (states, self.log())
            time.sleep(0.5)

    def run(self, script: str) -> int:
        """Run a job to its end and return its exit code."""
        (state,) = self.ended(self.submit(script))
        code, number = state["ExitCode"].split(":")
        assert number == "0", (state, self.log())
        return int(code)

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("log-*")))


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    if SIZE > 1:
        pytest.skip("jobs are submitted by pytest in one process")
    environment = scrubbed_environment()
    if "SLURM_CONF" in os.environ:
        environment["SLURM_CONF"] = os.environ["SLURM_CONF"]
    if shutil.which("sinfo") is None or subprocess.run(["sinfo"], env=environment, capture_output=True).returncode:
        pytest.skip("no SLURM answers: run scripts/test_cluster.sh slurm as root")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mpi-ustat").write_text(PROGRAM.format(python=sys.executable))
    (programs / "mpi-ustat").chmod(0o755)
    environment["PATH"] = os.pathsep.join([str(programs), str(Path(sys.prefix, "bin")), environment["PATH"]])
    environment["PYTHONPATH"] = str(REPOSITORY)
    return Slurm(tmp_path, environment)


@pytest.fixture
def mpi() -> str:
    return "openmpi" if "Open MPI" in library_version(WORLD) else "mpich"


def numbers(path: Path) -> dict[str, np.ndarray]:
    """All values of a result file but for seconds, and for what was sent: going on from a checkpoint sends rows too."""
    values = {name: data.values for name, data in load(path).datasets.items()}
    return {name: value for name, value in values.items() if not re.search("seconds|_moved", name)}


def assert_same_bits(left: Path, right: Path) -> None:
    values, others = numbers(left), numbers(right)
    assert values.keys() == others.keys() and len(values) > 2
    for name in values:
        np.testing.assert_array_equal(values[name], others[name], err_msg=name)


@pytest.mark.parametrize("launcher", ["mpiexec", "srun"])
def test_both_launchers_start_ranks_that_find_each_other(
    slurm: Slurm, here: Here, mpirun: Mpirun, mpi: str, launcher: str
) -> None:
    data = write_csv(slurm.folder / "it's data.csv", some_rows())
    words = ["estimate", data.name, "--score", "score", "--label", "label", "--workers", 5, "--rounds", 3, "--seed", 1]
    options = ["--ntasks", 4, "--time", "00:05:00", "--launcher", launcher, "--mpi", mpi]
    assert slurm.run(here(*options, "--", *words, "--output", "job.h5").stdout) == 0, slurm.log()
    assert load(slurm.folder / "job.h5").provenance["n_ranks"] == 4
    done = mpirun(4, *words, "--output", "here.h5", cwd=slurm.folder)
    assert done.returncode == 0, done.stderr
    assert_same_bits(slurm.folder / "job.h5", slurm.folder / "here.h5")


def test_srun_that_is_told_of_no_mpi_is_refused(slurm: Slurm, here: Here, mpi: str) -> None:
    if mpi != "mpich" or "none" not in slurm.call("scontrol", "show", "config").partition("MpiDefault")[2][:40]:
        pytest.skip("with this MPI, or this SLURM, srun alone may do")
    data = write_csv(slurm.folder / "data.csv", some_rows())
    words = ["estimate", data.name, "--score", "score", "--label", "label", "--output", "job.h5"]
    script = here("--ntasks", 4, "--time", "00:05:00", "--launcher", "srun", "--", *words).stdout
    assert slurm.run(script.replace("srun --mpi=pmi2", "srun")) == 2
    ours = [line for line in slurm.log().splitlines() if "mpi-ustat: " in line]
    assert len(ours) == 1
    assert "4 processes but MPI sees 1" in ours[0] and "srun --mpi=pmi2" in ours[0]
    assert not (slurm.folder / "job.h5").exists()


def test_the_tasks_of_an_array_are_replicates(slurm: Slurm, here: Here, mpi: str) -> None:
    data = write_csv(slurm.folder / "data.csv", some_rows())
    words = ["estimate", data.name, "--score", "score", "--label", "label", "--workers", 5, "--output", "%a.h5"]
    script = here("--ntasks", 2, "--time", "00:05:00", "--mpi", mpi, "--array", "3-4", "--", *words).stdout
    states = slurm.ended(slurm.submit(script))
    assert [state["JobState"] for state in states] == ["COMPLETED", "COMPLETED"], slurm.log()
    results = [load(slurm.folder / f"{index}.h5") for index in (3, 4)]
    assert [result.config["seed"] for result in results] == [3, 4]


def test_learning_that_meets_its_time_limit_goes_on_to_the_same_bits(
    slurm: Slurm, here: Here, mpirun: Mpirun, mpi: str
) -> None:
    """Under both launchers at once: the first attempt would take 10 minutes and has 2.

    SLURM warns it when 20 to 80 seconds are left. A job that is queued again waits for 2 minutes, unless SLURM is
    configured otherwise.
    """
    data = write_csv(slurm.folder / "data.csv", some_rows())
    words = ["learn", data, "--label", "label", "--positive", 1, "--workers", 5, "--iterations", 3000, "--seed", 1]
    words += ["--eval-every", 5, "--batch-pairs", 3, "--repartition-every", 10]
    options = ["--ntasks", 2, "--time", "00:02:00", "--signal-before", 20, "--requeue", "--mpi", mpi]
    options += ["--setup", '[ -n "$SLURM_RESTART_COUNT" ] || export SLOWLY=1']
    jobs = {}
    for launcher in ("mpiexec", "srun"):
        own = replace(slurm, folder=slurm.folder / launcher)
        own.folder.mkdir()
        files = ["--checkpoint", "checkpoint.h5", "--output", "job.h5"]
        jobs[own.submit(here(*options, "--launcher", launcher, "--", *words, *files).stdout)] = own
    done = mpirun(2, *words, "--output", "here.h5", cwd=slurm.folder)
    assert done.returncode == 0, done.stderr
    for job, own in jobs.items():
        (state,) = own.ended(job, patience=600)
        assert state["JobState"] == "COMPLETED", (state, own.log())
        assert state["Restarts"] == "1"
        (iteration,) = map(int, re.findall(r"stopped at iteration (\d+), checkpoint in checkpoint.h5", own.log()))
        assert 0 < iteration < 3000
        assert load(own.folder / "checkpoint.h5").datasets["iteration"].values == iteration
        assert_same_bits(own.folder / "job.h5", slurm.folder / "here.h5")


def test_a_job_that_is_cancelled_stays_cancelled(slurm: Slurm, here: Here, mpi: str) -> None:
    """SIGTERM makes learn stop with a checkpoint and 75 too; the shell, which would queue it again, is gone by then."""
    data = write_csv(slurm.folder / "data.csv", some_rows())
    words = ["learn", data.name, "--label", "label", "--positive", 1, "--iterations", 1000, "--eval-every", 1]
    options = ["--ntasks", 2, "--time", "00:05:00", "--requeue", "--mpi", mpi, "--setup", "export SLOWLY=1"]
    job = slurm.submit(here(*options, "--", *words, "--checkpoint", "checkpoint.h5").stdout)
    deadline = time.monotonic() + 60
    while "starting afresh" not in slurm.log():
        assert time.monotonic() < deadline, slurm.states(job)
        time.sleep(0.5)
    slurm.call("scancel", job)
    (state,) = slurm.ended(job)
    assert state["JobState"] == "CANCELLED" and state["Restarts"] == "0"
