"""Jobs over several hosts, which have nothing but a network in common. `scripts/test_cluster.sh hosts` makes them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from conftest import REPOSITORY, SIZE, Mpirun, _kill_group, started
from test_slurm import numbers

from mpi_ustat.storage.results import load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

N_HOSTS = 4

ESTIMATE = ("--label", "y", "--positive", 1, "--columns", "s", "--workers", 10, "--seed", 1)

LEARN = ("--label", "y", "--positive", 1, "--workers", 10, "--seed", 1, "--iterations", 60)


class Hosts:
    """The network namespaces mpi1, …, mpi4 that `scripts/hosts.sh up 4` has made, each with a network device eth0."""

    def bytes_sent(self) -> list[int]:
        """Return what each host has sent so far."""
        return [
            json.loads(ip("-s", "-j", "-n", host, "link", "show", "eth0"))[0]["stats64"]["tx"]["bytes"]
            for host in self.names
        ]

    def processes(self) -> list[int]:
        return [int(pid) for host in self.names for pid in ip("netns", "pids", host).split()]

    @property
    def names(self) -> list[str]:
        return [f"mpi{k}" for k in range(1, N_HOSTS + 1)]

    @contextmanager
    def dead_link(self, host: str) -> Iterator[None]:
        """Let a host's network device be down."""
        ip("-n", host, "link", "set", "eth0", "down")
        try:
            yield
        finally:
            ip("-n", host, "link", "set", "eth0", "up")

    @contextmanager
    def job(self, *words: object) -> Iterator[subprocess.Popen[str]]:
        """Start `mpi-ustat` with a rank on each host; whatever is left of it in the end is killed."""
        path = os.pathsep.join([str(Path(sys.prefix, "bin")), os.environ["PATH"]])
        script = str(REPOSITORY / "scripts" / "hosts.sh")
        process = started(
            [script, "run", str(N_HOSTS), sys.executable, "-m", "mpi_ustat", *map(str, words)], env={"PATH": path}
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                _kill_group(process)
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def run(self, *words: object) -> None:
        with self.job(*words) as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, (out, err)


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@pytest.fixture
def hosts() -> Hosts:
    if SIZE > 1:
        pytest.skip("jobs are started by pytest in one process")
    hosts = Hosts()
    known = ip("netns", "list").split() if shutil.which("ip") else []
    if not set(hosts.names) <= set(known):
        pytest.skip("there are no hosts: run scripts/test_cluster.sh hosts as root")
    return hosts


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 001 points, which 4 ranks don't share evenly: a score and 4 more columns."""
    rng = np.random.default_rng(1)
    y = rng.random(300_001) < 0.3
    columns = {
        name: rng.normal(size=y.size) + y * shift for name, shift in zip("sabcd", (1, 0, 0.5, 0, 2), strict=True)
    }
    path = tmp_path_factory.mktemp("hosts") / "data.npz"
    np.savez(path, y=y.astype(int), **columns)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", *ESTIMATE, "--rounds", 4),
        ("estimate", *ESTIMATE, "--rounds", 4, "--scheme", "rotation"),
        ("estimate", *ESTIMATE, "--complete"),
        ("learn", *LEARN, "--repartition-every", 10, "--eval-every", 20),
    ],
    ids=["prop-swor", "rotation", "complete", "learn"],
)
def test_rows_cross_the_network_and_results_are_those_of_one_process(
    hosts: Hosts, mpirun: Mpirun, tmp_path: Path, data: Path, words: Sequence[object]
) -> None:
    command, *options = words
    before = hosts.bytes_sent()
    hosts.run(command, data, *options, "--output", tmp_path / "hosts.h5")
    sent = np.subtract(hosts.bytes_sent(), before)
    done = mpirun(0, command, data, *options, "--output", tmp_path / "here.h5", timeout=120)
    assert done.returncode == 0, done.stderr
    values, others = numbers(tmp_path / "hosts.h5"), numbers(tmp_path / "here.h5")
    assert values.keys() == others.keys() and len(values) > 2
    for name in values.keys() - {"history/bytes_reduced"}:
        np.testing.assert_array_equal(values[name], others[name], err_msg=name)
    moved = bytes_moved(tmp_path / "hosts.h5")
    print(f"moved {moved / 1e6:.1f} MB, hosts sent {sent / 1e6} MB")
    assert moved > 1e6
    assert sent.sum() >= moved
    assert min(sent) >= moved / N_HOSTS / 2  # rows lie evenly over the hosts


def bytes_moved(path: Path) -> int:
    """Return what all ranks together have sent to other ranks, as the result file tells."""
    result = load(path)
    assert result.provenance["n_ranks"] == N_HOSTS
    told = {name: data.values for name, data in result.datasets.items() if name.endswith("bytes_moved")}
    assert told
    return int(max(values[-1] if "history" in name else np.sum(values) for name, values in told.items()))


@pytest.mark.parametrize("command", ["estimate", "learn"])
def test_a_dead_link_ends_the_job_within_the_timeout(hosts: Hosts, tmp_path: Path, data: Path, command: str) -> None:
    """MPI itself would wait for minutes: nobody tells it that nothing comes any more."""
    timeout = 8
    words: list[object] = [command, data, "--timeout", timeout, "--quiet", "--output", tmp_path / "never.h5"]
    if command == "estimate":
        words += [*ESTIMATE, "--rounds", 100_000]
    else:
        words += [*LEARN[:-1], 1_000_000, "--repartition-every", 1, "--eval-every", 10]
    before = sum(hosts.bytes_sent())
    with hosts.job(*words) as process:
        deadline = time.monotonic() + 60
        while sum(hosts.bytes_sent()) < before + 3e7:  # rows are under way
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        with hosts.dead_link("mpi3"):
            cut = time.monotonic()
            out, err = process.communicate(timeout=timeout + 20)
            print(f"ended {time.monotonic() - cut:.1f} s after the link: {err}")
            while hosts.processes():
                assert time.monotonic() < cut + timeout + 20
                time.sleep(0.1)
    assert process.returncode != 0
    assert f"no progress for {timeout} s" in err and "a host or a link is dead" in err
    assert "Traceback" not in out + err
    assert not (tmp_path / "never.h5").exists()
