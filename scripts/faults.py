"""Makes ranks of jobs fail on purpose, and checks that every job fails as one: soon, telling why, leaving nothing.

    python scripts/faults.py                      200 faults in `estimate` and `learn` on 4 ranks, and a table of them
    python scripts/faults.py --injections 20 --seed 7 --mpi "mpiexec --oversubscribe"

Which fault: see `faulty`. A job must end by itself within the limit, with an exit code other than 0 and a message that
names the cause (after a SIGKILL the launcher's); no process may be left, no file that is not whole, and no shared
memory. If a checkpoint is left, the run that goes on from it must end in the bits of an undisturbed one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faulty import KINDS, PHASES, VARIABLE, Fault

from mpi_ustat.app.job_leftovers import stale_files
from mpi_ustat.errors import UserError
from mpi_ustat.storage.results import load

REPOSITORY = Path(__file__).resolve().parents[1]
FAULTY = str(REPOSITORY / "scripts" / "faulty.py")

COMMANDS = {
    "estimate": shlex.split("--kernel gini --columns a --workers 6 --rounds 6 --checkpoint-every 2"),
    "learn": shlex.split("--workers 6 --batch-pairs 5 --repartition-every 4 --iterations 24 --checkpoint-every 8"),
}
RESULTS = {"estimate": ("estimate", "stderr", "per_round"), "learn": ("weights", "train_loss", "test_auc")}

COUNTED = """\
import json, sys
from mpi_ustat.app.cli import main
from faulty import PHASES
from mpi_ustat.mpi.runtime import listening

counts = dict.fromkeys(PHASES, 0)

def count(name):
    for phase, belongs in PHASES.items():
        counts[phase] += belongs(name)

with listening(count):
    code = main(sys.argv[2:])
open(sys.argv[1], "w").write(json.dumps(counts))
sys.exit(code)
"""
"""Runs a command and writes how often it enters each phase: as often on every number of ranks."""

SAID = {
    "raise": ("a fault on purpose",),
    "exit": ("SystemExit",),
    "hang": ("no progress for",),
    "hold": ("no progress for", "Timeout ("),
    "stop": ("no progress for",),
    "kill": ("signal 9", "KILLED", "Killed"),
    "full": ("the disk is full",),
    "readonly": ("is read-only",),
}
"""What of a job's output tells each kind; the last resort against code that keeps Python's lock is faulthandler's."""


@dataclass
class Outcome:
    """How one job ended, and what was wrong with that."""

    command: str
    fault: Fault
    code: int
    seconds: float
    named: bool
    files: tuple[str, ...]
    left: int = 0
    wrong: list[str] = field(default_factory=list)
    output: str = ""


class Harness:
    """Runs jobs in folders of their own, which it removes.

    Parameters
    ----------
    n_ranks : int
    launcher : sequence of str
    timeout : float
        The jobs' --timeout, in seconds.
    limit : float
        Seconds that a job may take.
    resume : bool
        Whether to go on from the checkpoints that are left.
    alone : bool
        Whether no other MPI jobs run on this host, so that what is left in its shared memory is ours.
    """

    def __init__(
        self,
        n_ranks: int,
        launcher: Sequence[str],
        *,
        timeout: float = 3.0,
        limit: float = 10.0,
        resume: bool = True,
        alone: bool = False,
    ) -> None:
        self.n_ranks, self.launcher, self.timeout, self.limit = n_ranks, launcher, timeout, limit
        self.resume, self.alone = resume, alone
        self._whole: dict[str, tuple[dict[str, int], Any]] = {}

    def undisturbed(self, command: str) -> tuple[dict[str, int], Any]:
        """Return how often a command enters each phase, and its result."""
        if command not in self._whole:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                words = [sys.executable, "-c", COUNTED, str(folder / "counts"), *arguments(command, folder), "--json"]
                done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True)
                self._whole[command] = json.loads((folder / "counts").read_text()), result(command, done.stdout)
        return self._whole[command]

    def draw(self, n: int, seed: int, commands: Iterable[str] = COMMANDS) -> Iterator[tuple[str, Fault]]:
        """Yield faults: all kinds in all phases of all commands, in random order, on random ranks, at random times."""
        rng = random.Random(seed)
        every = [(command, phase, kind) for command in commands for phase in PHASES for kind in KINDS]
        while n > 0:
            rng.shuffle(every)
            for command, phase, kind in every[:n]:
                # Rank 0 writes all files: only its disk matters.
                rank = 0 if kind in ("full", "readonly") else rng.randrange(self.n_ranks)
                yield command, Fault(phase, rng.randint(1, self.undisturbed(command)[0][phase]), rank, kind)
            n -= len(every)

    def run(self, command: str, fault: Fault) -> Outcome:
        """Run a command with a fault, and check how it ends."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            words = arguments(command, folder)
            marker = f"marker={folder.name}-{os.getpid()}"  # an option that tells our processes from others'
            job = [*self.launcher, "-n", str(self.n_ranks), sys.executable, "-X", marker, FAULTY, *words]
            asked = f"{fault.phase}:{fault.count}:{fault.rank}:{fault.kind}"
            before = set(stale_files())
            began = time.monotonic()
            code, out, err = ended(
                [*job, "--timeout", f"{self.timeout:g}"], environment() | {VARIABLE: asked}, 60 + self.limit
            )
            outcome = Outcome(command, fault, code, time.monotonic() - began, False, (), output=f"{out}\n{err}")
            outcome.wrong += self._wrong_ending(outcome, out, err)
            left = processes(marker, patience=5.0)
            if left:
                outcome.wrong.append(f"{len(left)} processes are left")
                for process in left:
                    os.kill(process, signal.SIGKILL)
            outcome.left = len(set(stale_files()) - before)
            if outcome.left and self.alone:
                outcome.wrong.append(f"{outcome.left} files are left in the shared memory or by the launcher")
            outcome.files = tuple(sorted(path.name for path in folder.iterdir() if path.name != "data.csv"))
            outcome.wrong += wrong_files(folder, outcome.files)
            if self.resume and "run.ck" in outcome.files and not outcome.wrong:
                outcome.wrong += self._wrong_continuation(command, words, marker)
        return outcome

    def _wrong_ending(self, outcome: Outcome, out: str, err: str) -> list[str]:
        fault, wrong = outcome.fault, []
        if outcome.code == 0:
            wrong.append("it ended as if nothing had happened")
        if outcome.seconds > self.limit:
            wrong.append(f"it took {outcome.seconds:.1f} s")
        if not any(text in out + err for text in SAID[fault.kind]):
            wrong.append("nothing names the cause")
        names = (f"on rank {fault.rank}", f"rank {fault.rank} of ")
        outcome.named = any(name in err for name in names)
        if fault.kind in ("raise", "exit", "full", "readonly") and not outcome.named:
            wrong.append("nothing names the rank")
        if "Traceback" in out or "Thread 0x" in out:
            wrong.append("a traceback is on stdout")
        return wrong

    def _wrong_continuation(self, command: str, words: list[str], marker: str) -> list[str]:
        more = [sys.executable, "-X", marker, "-m", "mpi_ustat", *words, "--resume", "--overwrite", "--json"]
        code, out, err = ended(more, environment(), 60)
        if code != 0:
            return [f"the checkpoint can't be gone on from: {err}"]
        return [] if result(command, out) == self.undisturbed(command)[1] else ["going on ends in other bits"]


def arguments(command: str, folder: Path) -> list[str]:
    """Write the data of a command; return its words."""
    rng = random.Random(1)
    rows = ["a,b,y\n"]
    for k in range(120):
        y = int(k % 3 == 0)
        rows.append(f"{rng.gauss(y, 1)!r},{rng.gauss(0, 1)!r},{y}\n")
    (folder / "data.csv").write_text("".join(rows))
    own = ["--label", "y", "--seed", "3", "--checkpoint", str(folder / "run.ck"), "--output", str(folder / "out.h5")]
    return [command, str(folder / "data.csv"), *COMMANDS[command], *own]


def result(command: str, text: str) -> Any:
    """Return the numbers of a command's JSON that depend on all it has done."""
    found = json.loads(text)
    return [found[name] for name in RESULTS[command]]


def environment() -> dict[str, str]:
    """Return the environment without what a launcher has put there, and with this tree."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "PMIX", "SLURM_", "MPI_"))}
    search = os.pathsep.join(filter(None, [own.get("PYTHONPATH"), str(REPOSITORY), str(REPOSITORY / "scripts")]))
    return own | {"PYTHONPATH": search, "OMP_NUM_THREADS": "1"}


def ended(words: list[str], env: dict[str, str], patience: float) -> tuple[int, str, str]:
    """Run a program with a marker; return its exit code, stdout and stderr; end its processes if it takes too long."""
    process = subprocess.Popen(
        words,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        # Ranks have sessions of their own, and take SIGTERM for a wish.
        for other in processes(next(word for word in words if word.startswith("marker=")), patience=0.0):
            os.kill(other, signal.SIGKILL)
        out, err = process.communicate()
    return process.returncode, out, err


def processes(marker: str, *, patience: float) -> list[int]:
    """Return the processes that have the marker on their command line, once those about to end have ended."""
    deadline = time.monotonic() + patience
    while True:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def wrong_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Say which files are none that a job may leave, or not whole."""
    wrong = []
    for name in names:
        if name.startswith(".mpi_ustat-") and name.endswith(".lock"):  # which locks nothing without its process
            continue
        if name not in ("run.ck", "out.h5"):
            wrong.append(f"{name} is left")
            continue
        try:
            load(folder / name)
        except UserError as error:
            wrong.append(str(error))
    return wrong


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the outcomes by kind and phase, a line for each."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for each in outcomes:
        groups[each.fault.kind, each.fault.phase].append(each)
    heads = f"{'kind':<10}{'phase':<12}jobs  {'exit':<8}{'s, at most':>10}  {'rank named':<12}{'memory left':<13}"
    lines = [f"{heads}{'files left':<18}wrong"]
    for kind in KINDS:
        for phase in PHASES:
            found = groups.get((kind, phase), [])
            if not found:
                continue
            codes = ",".join(map(str, sorted({each.code for each in found})))
            files = " ".join(sorted({name for each in found for name in each.files})) or "none"
            named = f"{sum(each.named for each in found)} of {len(found)}"
            wrong = "; ".join(dict.fromkeys(text for each in found for text in each.wrong)) or "-"
            slowest = max(each.seconds for each in found)
            memory = sum(each.left for each in found)
            lines.append(
                f"{kind:<10}{phase:<12}{len(found):>4}  {codes:<8}{slowest:>10.1f}  {named:<12}{memory:<13}{files:<18}"
                f"{wrong}"
            )
    return lines


def default_launcher() -> str:
    """Return the launcher of the virtual environment, or else the one on the PATH."""
    own = Path(sys.prefix, "bin", "mpiexec")
    return str(own) if own.exists() else shutil.which("mpiexec") or "mpiexec"


def main() -> int:
    """Run the faults; 1 if a job has ended as it must not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", type=int, default=4, metavar="P", help="ranks (default 4)")
    parser.add_argument("--injections", type=int, default=200, metavar="N", help="faults (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of kinds, phases, ranks and times (default 0)")
    parser.add_argument("--mpi", default=default_launcher(), metavar="LAUNCHER", help="with its options")
    parser.add_argument("--timeout", type=float, default=3.0, metavar="S", help="the jobs' --timeout (default 3)")
    parser.add_argument("--limit", type=float, default=10.0, metavar="S", help="a job may take so long (default 10)")
    parser.add_argument("--no-resume", action="store_true", help="don't go on from checkpoints that are left")
    parser.add_argument("--not-alone", action="store_true", help="other MPI jobs run on this host meanwhile")
    given = parser.parse_args()
    harness = Harness(
        given.n,
        shlex.split(given.mpi),
        timeout=given.timeout,
        limit=given.limit,
        resume=not given.no_resume,
        alone=not given.not_alone,
    )
    outcomes: list[Outcome] = []
    print(table([])[0], flush=True)
    for command, fault in harness.draw(given.injections, given.seed):
        outcomes.append(harness.run(command, fault))
        print(table(outcomes[-1:])[1], flush=True)
        if outcomes[-1].wrong:
            print(f"{command}, {fault}\n{outcomes[-1].output}", flush=True)
    print("\nall of them:", *table(outcomes), sep="\n")
    n_wrong = sum(bool(each.wrong) for each in outcomes)
    print(f"{len(outcomes)} faults, {n_wrong} jobs ended as they must not")
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
