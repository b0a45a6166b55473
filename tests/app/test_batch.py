"""`mpi-ustat batch`: the text of job scripts, and what they do with stand-ins for a launcher and a batch system."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import refusal
from conftest import REPOSITORY, scrubbed_environment
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_ustat.app.job import Job, seconds
from mpi_ustat.app.job_script import job_script
from mpi_ustat.app.task_array import TaskArray
from mpi_ustat.errors import UserError

Here = Callable[..., CompletedProcess[str]]

COMMAND = ("batch",)

ESTIMATE = ("--", "estimate", "scores.csv", "--label", "y")
LEARN = ("--", "learn", "data.h5", "--label", "y", "--checkpoint", "c.h5")

FAKE = """\
#!/bin/bash
printf '%s\\0' "$@" >>"$RECORDS/${0##*/}"
[ "${0##*/}" != "$LAUNCHER" ] || eval "$BEHAVIOUR"
"""

STOPS = """\
trap 'echo >>"$RECORDS/signals"; sleep 0.2; exit 75' USR1
: >"$RECORDS/ready"
while :; do sleep 0.05; done
"""
"""What a launcher does whose ranks stop on SIGUSR1: it takes its time."""


@dataclass
class Cluster:
    """A folder of programs that stand in for a launcher's and a batch system's, and write down how they are called."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, script: str, behaviour: str = "", launcher: str = "mpiexec") -> subprocess.Popen[str]:
        """Start a job script as a batch system does: from a copy of its own, in a group of processes of its own."""
        copy = self.folder / "spooled job.sh"
        copy.write_text(script, encoding="utf-8")
        copy.chmod(0o700)
        environment = scrubbed_environment() | {"RECORDS": str(self.folder), "BEHAVIOUR": behaviour}
        environment |= {
            "LAUNCHER": launcher,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
        }
        environment |= {"SLURM_JOB_ID": "17", "PBS_O_WORKDIR": str(self.folder), "PBS_NODEFILE": "/hosts of the job"}
        return subprocess.Popen(
            [str(copy)],
            env=environment | self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str, behaviour: str = "", launcher: str = "mpiexec") -> int:
        """Run a job script and return its exit code."""
        job = self.start(script, behaviour, launcher)
        try:
            job.communicate(timeout=60)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
        return job.returncode

    def calls(self, program: str) -> list[str]:
        """Return the words that a program got, of all its calls."""
        record = self.folder / program
        return record.read_text(encoding="utf-8").split("\0")[:-1] if record.exists() else []

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + 60
        while not (self.folder / name).exists():
            assert time.monotonic() < deadline, f"there is no {name}"
            time.sleep(0.01)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("mpiexec", "srun", "scontrol", "qsub"):
        (programs / name).write_text(FAKE)
        (programs / name).chmod(0o755)
    return Cluster(tmp_path)


def directives(script: str, prefix: str) -> list[str]:
    """The options that the batch system finds: those before the first line that does something."""
    found = []
    for line in script.splitlines():
        if line and not line.startswith("#"):
            break
        if line.startswith(prefix):
            found.append(line.removeprefix(prefix).strip())
    return found


# --- text


def test_slurm_gets_its_options(here: Here) -> None:
    words = ["slurm", "--job-name", "night", "--nodes", 2, "--ntasks-per-node", 4, "--time", "1-02:03:04"]
    words += ["--partition", "long", "--account", "stats", "--memory", "8G", "--array", "3-9:3%2", "--exclusive"]
    words += ["--cpus-per-task", 3, "--log", "logs/%x-%A_%a.out", "--sbatch", "--qos=high -C 'ib&fast'"]
    done = here(*words, "--sbatch", "#SBATCH --mail-type=END", "--sbatch=mail-user=ann@example.org", *ESTIMATE)
    assert done.returncode == 0 and done.stderr == ""
    assert directives(done.stdout, "#SBATCH") == [
        "--job-name=night",
        "--nodes=2",
        "--ntasks=8",
        "--ntasks-per-node=4",
        "--cpus-per-task=3",
        "--time=1-02:03:04",
        "--partition=long",
        "--account=stats",
        "--mem=8G",
        "--array=3-9:3%2",
        "--output=logs/%x-%A_%a.out",
        "--exclusive",
        "--qos=high -C 'ib&fast'",
        "--mail-type=END",
        "--mail-user=ann@example.org",
    ]
    assert "mpiexec -n 8 " in done.stdout and "export OMP_NUM_THREADS=3\n" in done.stdout
    assert "--mem-per-cpu=2G" in directives(
        here("slurm", "--ntasks", 1, "--memory-per-cpu", "2G", *ESTIMATE).stdout, "#SBATCH"
    )


def test_pbs_gets_its_options(here: Here) -> None:
    words = ["pbs", "--job-name", "night", "--nodes", 2, "--ntasks", 8, "--time", "1-02:03:04"]
    words += ["--queue", "long", "--account", "stats", "--memory", "8G", "--array", "3-7%2", "--exclusive"]
    words += ["--log", "logs/%a.out", "--qsub", "-M ann@example.org -m ae"]
    done = here(*words, *ESTIMATE)
    assert done.returncode == 0 and done.stderr == ""
    assert directives(done.stdout, "#PBS") == [
        "-N night",
        "-l select=2:ncpus=4:mpiprocs=4:mem=8gb",
        "-l place=scatter:exclhost",
        "-l walltime=26:03:04",
        "-q long",
        "-A stats",
        "-J 3-7",
        "-W max_run_subjobs=2",
        "-r y",
        "-j oe",
        "-o logs/^array_index^.out",
        "-M ann@example.org -m ae",
    ]
    threaded = here("pbs", "--ntasks", 4, "--cpus-per-task", 3, "--memory-per-cpu", "2G", *ESTIMATE).stdout
    assert "-l select=1:ncpus=12:mpiprocs=4:ompthreads=3:mem=24gb" in directives(threaded, "#PBS")
    assert "no PBS has run it." in done.stdout


@pytest.mark.parametrize("system", ["slurm", "pbs"])
def test_what_is_not_asked_for_is_left_to_the_system(here: Here, system: str) -> None:
    script = here(system, "--ntasks", 1, *ESTIMATE).stdout
    expected = {
        "slurm": ["--job-name=mpi-ustat-estimate", "--nodes=1", "--ntasks=1"],
        "pbs": ["-N mpi-ustat-estimate", "-l select=1:ncpus=1:mpiprocs=1", "-j oe"],
    }
    assert directives(script, {"slurm": "#SBATCH", "pbs": "#PBS"}[system]) == expected[system]
    assert "trap" not in script and "timeout" not in script and "75" not in script


def test_learning_with_checkpoints_is_told_to_stop_and_goes_on(here: Here) -> None:
    script = here("slurm", "--ntasks", 2, "--requeue", *LEARN).stdout
    assert directives(script, "#SBATCH")[3:] == ["--signal=B:USR1@60", "--requeue", "--open-mode=append"]
    assert "--signal=B:USR1@300" in here("slurm", "--ntasks", 2, "--signal-before", 300, *LEARN).stdout
    stays = here("slurm", "--ntasks", 2, *LEARN).stdout
    assert "scontrol" not in stays and "--requeue" not in stays
    pbs = here("pbs", "--ntasks", 2, "--time", "00:10:00", "--requeue", *LEARN).stdout
    assert "-r y" in directives(pbs, "#PBS")


CHECKPOINTING = {
    "estimate": (*ESTIMATE, "--rounds", "9", "--checkpoint", "c.h5"),
    "learn": LEARN,
    "reproduce": ("--", "reproduce", "fig4", "--folder", "figures"),
}


@pytest.mark.parametrize("command", CHECKPOINTING)
def test_every_command_that_keeps_checkpoints_is_told_to_stop_and_queued_again(
    here: Here, cluster: Cluster, command: str
) -> None:
    words = CHECKPOINTING[command]
    script = here("slurm", "--ntasks", 2, "--requeue", *words).stdout
    assert directives(script, "#SBATCH")[3:] == ["--signal=B:USR1@60", "--requeue", "--open-mode=append"]
    assert "--signal=B:USR1@9" in here("slurm", "--ntasks", 2, "--signal-before", 9, *words).stdout
    assert cluster.run(script, "exit 75") == 75
    assert cluster.calls("scontrol") == ["requeue", "17"]
    # Only where it is an option: `reproduce` goes on by itself.
    resume = [] if command == "reproduce" else ["--resume"]
    assert cluster.calls("mpiexec") == ["-n", "2", "mpi-ustat", *words[1:], *resume]
    pbs = here("pbs", "--ntasks", 2, "--time", "00:10:00", "--requeue", *words).stdout
    assert "-r y" in directives(pbs, "#PBS")
    assert "timeout --foreground --preserve-status --signal=USR1" in pbs and 'qsub "$0"' in pbs


def test_the_help_tells_which_commands_stop(here: Here) -> None:
    told = " ".join(here("--help").stdout.split())
    assert "commands that keep checkpoints (estimate and learn with --checkpoint; reproduce) are told" in told


def test_where_no_warning_is_possible_only_those_who_ask_for_checkpoints_are_refused(here: Here) -> None:
    reproduce = CHECKPOINTING["reproduce"]
    for words in (["pbs", "--ntasks", 1], ["slurm", "--ntasks", 1, "--time", "00:01:00"]):
        script = here(*words, *reproduce).stdout
        assert "mpi-ustat reproduce" in script and "USR1" not in script
        assert here(*words, *LEARN).returncode == here(*words, "--signal-before", 99, *reproduce).returncode == 2


@pytest.mark.parametrize("resume", [(), ("--resume",), ("--resu",)])
@pytest.mark.parametrize("last", [(), ("--", "data.h5")])
def test_a_job_goes_on_from_its_checkpoint_if_there_is_one(
    here: Here, cluster: Cluster, resume: tuple[str, ...], last: tuple[str, ...]
) -> None:
    data = () if last else ("data.h5",)
    words = ["learn", *data, "--label", "y", "--checkpoint=c.h5", *resume]
    assert cluster.run(here("slurm", "--ntasks", 2, "--", *words, *last).stdout) == 0
    added = () if resume else ("--resume",)
    assert cluster.calls("mpiexec") == ["-n", "2", "mpi-ustat", *words, *added, *last]


@pytest.mark.parametrize(
    ("words", "started"),
    [
        (("slurm",), ["mpiexec", "-n", "3"]),
        (("slurm", "--mpi", "openmpi"), ["mpiexec", "-n", "3"]),
        (("slurm", "--launcher", "srun"), ["srun", "--mpi=pmi2", "-n", "3"]),
        (("slurm", "--launcher", "srun", "--mpi", "openmpi"), ["srun", "--mpi=pmix", "-n", "3"]),
        (("slurm", "--launcher", "srun", "--cpus-per-task", 2), ["srun", "--mpi=pmi2", "--cpus-per-task=2", "-n", "3"]),
        (("slurm", "--mpi", "openmpi", "--cpus-per-task", 2), ["mpiexec", "--map-by", "slot:PE=2", "-n", "3"]),
        (("pbs",), ["mpiexec", "-n", "3"]),
        (("pbs", "--mpi", "openmpi"), ["mpiexec", "--hostfile", "/hosts of the job", "-n", "3"]),
    ],
)
def test_the_launcher_that_suits_the_mpi_is_used(
    here: Here, cluster: Cluster, words: tuple[str, ...], started: list[str]
) -> None:
    assert cluster.run(here(*words, "--ntasks", 3, *ESTIMATE).stdout) == 0
    assert cluster.calls(started[0]) == [*started[1:], "mpi-ustat", *ESTIMATE[1:]]


def test_the_program_may_be_named(here: Here) -> None:
    named = here("slurm", "--ntasks", 1, "--", "mpi-ustat", *ESTIMATE[1:]).stdout
    assert named.splitlines()[2:] == here("slurm", "--ntasks", 1, *ESTIMATE).stdout.splitlines()[2:]


@pytest.mark.parametrize("name", ["estimate", "learn", "replicates", "reproduce"])
@pytest.mark.parametrize("system", ["slurm", "pbs"])
def test_the_examples_are_what_the_command_in_their_first_comment_writes(here: Here, system: str, name: str) -> None:
    example = (REPOSITORY / "scripts" / system / f"{name}.sh").read_text(encoding="utf-8")
    words = shlex.split(example.splitlines()[1].removeprefix("# "))
    assert words[:3] == ["mpi-ustat", "batch", system]
    assert here(*words[2:]).stdout == example


def test_the_script_goes_to_a_file_but_never_over_another(here: Here, tmp_path: Path) -> None:
    target = tmp_path / "job.sh"
    words = ("slurm", "--ntasks", 1, "--output", target)
    assert here(*words, *ESTIMATE).stdout == f"{target}\n"
    first = target.read_text()
    assert "--output" not in first.splitlines()[3:] and "mpi-ustat estimate scores.csv" in first
    assert "--overwrite" in refusal(here(*words, *LEARN))
    assert target.read_text() == first
    assert here(*words, "--overwrite", *LEARN).returncode == 0
    assert "mpi-ustat learn data.h5" in target.read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("00:00:01", 1), ("01:30:00", 5400), ("100:00:00", 360_000), ("2-03:04:05", 183_845)],
)
def test_time_limits_are_understood(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "90", "01:30", "00:00:00", "1:60:00", "1:00:60", "1-24:00:00", "-1:00:00", "1h"])
def test_other_time_limits_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="HH:MM:SS"):
        seconds(text)


# --- what is refused


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["slurm", *ESTIMATE], "--ntasks"),
        (["slurm", "--ntasks", 2, "--ntasks-per-node", 2, *ESTIMATE], "--ntasks-per-node"),
        (["slurm", "--ntasks", 0, *ESTIMATE], "at least one task"),
        (["slurm", "--ntasks", -3, *ESTIMATE], "at least one task"),
        (["slurm", "--ntasks-per-node", 0, *ESTIMATE], "at least one task"),
        (["slurm", "--nodes", 4, "--ntasks", 3, *ESTIMATE], "at least one task"),
        (["slurm", "--nodes", 0, "--ntasks", 1, *ESTIMATE], "number of nodes"),
        (["slurm", "--ntasks", 1, "--time", "90", *ESTIMATE], "HH:MM:SS"),
        (["slurm", "--ntasks", 1, "--memory", "8 GB", *ESTIMATE], "such as 8G"),
        (["slurm", "--ntasks", 1, "--job-name", "my job", *ESTIMATE], "job name"),
        (["slurm", "--ntasks", 1, "--account", "a\n#SBATCH --wrap=x", *ESTIMATE], "account"),
        (["slurm", "--ntasks", 1, "--partition", "", *ESTIMATE], "partition"),
        (["slurm", "--ntasks", 1, "--array", "7", *ESTIMATE], "first and last index"),
        (["slurm", "--ntasks", 1, "--array", "7-3", *ESTIMATE], "smaller index first"),
        (["slurm", "--ntasks", 1, "--array", "1-3:0", *ESTIMATE], "steps of 0"),
        (["slurm", "--ntasks", 1, "--array", "1-3%0", *ESTIMATE], "4 at once"),
        (["slurm", "--ntasks", 1, "--array", "0-10:5,7,5-6", *ESTIMATE], "an index twice"),
        (["slurm", "--ntasks", 1, "--array", "0-999999999", *ESTIMATE], "at most 4000000"),
        (
            ["slurm", "--ntasks", 1, "--array", "1-2", "--log", "o.txt", *ESTIMATE, "--output", "%a.h5"],
            "the log 'o.txt'",
        ),
        (["slurm", "--ntasks", 1, "--log", "a b", *ESTIMATE], "the log is 'a b'"),
        (["pbs", "--ntasks", 1, "--log", "%j.txt", *ESTIMATE], "PBS fills in nothing"),
        (["slurm", "--ntasks", 1, "--memory", "1G", "--memory-per-cpu", "1G", *ESTIMATE], "leave out --memory"),
        (["slurm", "--ntasks", 1, "--memory-per-cpu", "1", *ESTIMATE], "such as 8G"),
        (["slurm", "--ntasks", 1, "--cpus-per-task", 0, *ESTIMATE], "give at least 1"),
        (["slurm", "--ntasks", 1, "--sbatch", "--time=1", *ESTIMATE], "give its --time"),
        (["slurm", "--ntasks", 1, "--sbatch", "-J7", *ESTIMATE], "give its --job-name"),
        (["slurm", "--ntasks", 1, "--sbatch", "a\n#SBATCH --wrap=x", *ESTIMATE], "no line of options"),
        (["slurm", "--ntasks", 1, "--sbatch", "--comment='a", *ESTIMATE], "quotation mark"),
        (["slurm", "--ntasks", 1, "--qsub", "-m e", *ESTIMATE], "give --sbatch"),
        (["pbs", "--ntasks", 1, "--qsub", "-l walltime=3", *ESTIMATE], "give its --nodes"),
        (["slurm", "--ntasks", 1, "--setup", "x \\", *ESTIMATE], "last backslash"),
        (["slurm", "--ntasks", 1, "--signal-before", 10, *ESTIMATE], "estimate and learn with --checkpoint"),
        (["slurm", "--ntasks", 1, "--signal-before", 10, "--", "plan", "data.h5"], "and for reproduce: other"),
        (["slurm", "--ntasks", 1, "--signal-before", 0, *LEARN], "makes no sense"),
        (["slurm", "--ntasks", 1, "--signal-before", 70_000, *LEARN], "makes no sense"),
        (["slurm", "--ntasks", 1, "--time", "00:01:00", *LEARN], "before the job begins"),
        (["slurm", "--ntasks", 1, "--requeue", "--", "learn", "data.h5"], "--checkpoint"),
        (["pbs", "--ntasks", 1, "--launcher", "srun", *ESTIMATE], "srun"),
        (["pbs", "--nodes", 2, "--ntasks", 3, *ESTIMATE], "--ntasks-per-node"),
        (["pbs", "--ntasks", 1, "--array", "3-3", *ESTIMATE], "at least two"),
        (["pbs", "--ntasks", 1, *LEARN], "--time"),
        (["pbs", "--ntasks", 1, "--array", "1-2", "--requeue", *ESTIMATE], "--requeue or --array"),
        (["lsf", "--ntasks", 1, *ESTIMATE], "slurm"),
        (["slurm", "--ntasks", 1], "COMMAND"),
        (["slurm", "--ntasks", 1, "--"], "COMMAND"),
        (["slurm", "--ntasks", 1, "plan", "a b.csv"], "mpi-ustat batch slurm --ntasks 1 -- plan 'a b.csv'"),
        (["slurm", "--ntasks", 1, "--", "mpi-ustat"], "estimate, learn"),
        (["slurm", "--ntasks", 1, "estimate", "--"], "estimate, learn"),
        (["slurm", "--ntasks", 1, "--", "info", "f.h5"], "estimate, learn"),
        (["slurm", "--ntasks", 1, "--", "batch", "slurm"], "estimate, learn"),
        (["slurm", "--ntasks", 1, "--", "estimate", "a.csv", "--rounds", "many"], "--rounds"),
        (["slurm", "--ntasks", 1, "--", "learn", "a.csv", "--output", "a.h5", "--nodes", 2], "--nodes"),
        (["slurm", "--ntasks", 1, "--", "estimate", "--help"], "leave --help out"),
        (["pbs", "--ntasks", 1, "--time", "01:00:00", "--", "learn", "a.csv", "--hel"], "leave --help out"),
        (["slurm", "--ntasks", 1, "--array", "1-2", *ESTIMATE, "--output", "f.h5"], "%a"),
        (["slurm", "--ntasks", 1, "--array", "1-2", *ESTIMATE, "--seed", 5], "%a"),
        (["slurm", "--ntasks", 1, "--array", "1-2", *LEARN], "%a"),
        (["slurm", "--ntasks", 1, "--array", "1-2", "--", "reproduce", "fig1"], "%a"),
        (["slurm", "--ntasks", 1, "--array", "1-2", *ESTIMATE, "--seed", "x%a"], "--seed"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(here: Here, words: list[object], named: str) -> None:
    assert named in refusal(here(*words))


# --- what scripts do

HOSTILE = [
    "a b.h5",
    "it's",
    'say "x"',
    "$HOME",
    "${SHELL:-x}",
    "`id`",
    "$(id)",
    "a\\b",
    "a\nb",
    "\t",
    "*",
    "~",
    "#SBATCH",
    "\n#SBATCH --nodes=9",
    "a;b&c|d>e",
    "!!",
    "é-日本",
    "{1,2}",
    "",
]


@pytest.mark.parametrize("system", ["slurm", "pbs"])
def test_every_word_arrives_as_it_is(here: Here, cluster: Cluster, system: str) -> None:
    words = ["estimate", "--x", HOSTILE[0], "--columns", *HOSTILE[1:2]]
    for word in HOSTILE:
        words += ["--label", word]
    script = here(system, "--ntasks", 2, "--", *words).stdout
    assert cluster.run(script) == 0
    assert cluster.calls("mpiexec") == ["-n", "2", "mpi-ustat", *words]
    assert not any("nodes=9" in option for option in directives(script, "#SBATCH"))


_WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12), max_size=30)


@settings(max_examples=15)
@given(words=_WORDS, index=st.sampled_from([None, TaskArray.of("1-9")]))
def test_any_word_arrives_as_it_is(words: list[str], index: TaskArray | None) -> None:
    job = Job(
        system="slurm",
        command=("mpi-ustat", *words, "b%a%aé"),
        origin=shlex.join(words),
        n_tasks=1,
        array=index,
        setup=("mpiexec() { printf '%s\\0' \"$@\"; }",),
    )
    done = subprocess.run(
        ["bash", "-s"],
        input=job_script(job).encode(),
        env={"PATH": os.environ["PATH"], "SLURM_ARRAY_TASK_ID": "7"},
        capture_output=True,
        timeout=20,
        check=True,
    )
    expected = ["-n", "1", "mpi-ustat", *words, "b%a%aé"]
    assert done.stderr == b""
    assert done.stdout.decode().split("\0")[:-1] == [word.replace("%a", "7") if index else word for word in expected]


@pytest.mark.parametrize(("system", "variable"), [("slurm", "SLURM_ARRAY_TASK_ID"), ("pbs", "PBS_ARRAY_INDEX")])
def test_the_tasks_of_an_array_have_seeds_and_files_of_their_own(
    here: Here, cluster: Cluster, system: str, variable: str
) -> None:
    words = ["learn", "a b%a.csv", "--output", "it's $5 %a.h5", "--checkpoint", "%a.h5", "--iterations", "20"]
    script = here(system, "--ntasks", 1, "--time", "01:00:00", "--array", "11-12", "--", *words).stdout
    for index in ("11", "12"):
        cluster.environment = {variable: index}
        assert cluster.run(script) == 0
    expected = [[word.replace("%a", index) for word in [*words, "--seed", "%a", "--resume"]] for index in ("11", "12")]
    assert cluster.calls("mpiexec") == ["-n", "1", "mpi-ustat", *expected[0], "-n", "1", "mpi-ustat", *expected[1]]
    listed = here(system, "--ntasks", 1, "--array", "4,7-8%1", "--", "plan", "%a.csv").stdout
    assert ("--array=4,7-8%1" in listed) == (system == "slurm") and ("-J 0-2\n" in listed) == (system == "pbs")
    cluster.environment = {variable: {"slurm": "8", "pbs": "2"}[system]}
    assert cluster.run(listed) == 0
    assert cluster.calls("mpiexec")[-5:] == ["mpi-ustat", "plan", "8.csv", "--seed", "8"]
    own = here(system, "--ntasks", 1, "--array", "1-2", *ESTIMATE, "--seed", "10%a").stdout
    assert '10"$index"' in own and own.count("--seed") == 2  # in the first comment, and in the command


def test_the_environment_is_set_up_before_the_start(here: Here, cluster: Cluster) -> None:
    environment = cluster.folder / "it's an environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "activate").write_text('ACTIVE="$MODULE, activated"\nexport ACTIVE\n')
    words = ["slurm", "--ntasks", 1, "--setup", "export MODULE=loaded", "--setup", "MODULE=$MODULE' twice'"]
    script = here(*words, "--venv", environment, *ESTIMATE).stdout
    assert cluster.run(script, 'printf %s "$ACTIVE, $OMP_NUM_THREADS" >"$RECORDS/seen"') == 0
    assert (cluster.folder / "seen").read_text() == "loaded twice, activated, 1"
    (environment / "bin" / "activate").unlink()
    (cluster.folder / "mpiexec").unlink()
    failing = [here("slurm", "--ntasks", 1, "--setup", line, *ESTIMATE).stdout for line in ("exit_7", "exit_7 # why")]
    assert "exit_7 || exit\n" in failing[0]
    for each in (script, *(each.replace("exit_7", "(exit 7)") for each in failing)):
        assert cluster.run(each) == (7 if "(exit 7)" in each else 1)
    assert cluster.calls("mpiexec") == []


def learning(here: Here, launcher: str, *more: object) -> str:
    script = here("slurm", "--ntasks", 2, "--launcher", launcher, *more, *LEARN).stdout
    assert script
    return script


@pytest.mark.parametrize("launcher", ["mpiexec", "srun"])
@pytest.mark.parametrize("code", [0, 1, 2, 3, 75, 137])
def test_the_exit_code_is_the_launchers_and_75_queues_again(
    here: Here, cluster: Cluster, launcher: str, code: int
) -> None:
    assert cluster.run(learning(here, launcher, "--requeue"), f"exit {code}", launcher) == code
    assert cluster.calls("scontrol") == (["requeue", "17"] if code == 75 else [])


def test_without_requeue_a_stop_is_only_told(here: Here, cluster: Cluster) -> None:
    assert cluster.run(learning(here, "mpiexec"), "exit 75") == 75
    assert cluster.calls("scontrol") == []


def test_a_command_without_checkpoints_keeps_its_exit_code(here: Here, cluster: Cluster) -> None:
    script = here("slurm", "--ntasks", 2, "--requeue", *ESTIMATE).stdout
    assert cluster.run(script, "exit 3") == 3
    assert cluster.run(script, "exit 75") == 75
    assert cluster.calls("scontrol") == []


def test_a_launcher_that_is_killed_is_told(here: Here, cluster: Cluster) -> None:
    assert cluster.run(learning(here, "mpiexec", "--requeue"), "kill -KILL $$") == 128 + signal.SIGKILL
    assert cluster.calls("scontrol") == []


@pytest.mark.parametrize("launcher", ["mpiexec", "srun"])
@pytest.mark.parametrize("times", [1, 2])
def test_slurms_warning_reaches_the_launcher(here: Here, cluster: Cluster, launcher: str, times: int) -> None:
    """The signal goes to the script's shell alone, as SLURM sends it, and again while the launcher stops."""
    job = cluster.start(learning(here, launcher, "--requeue"), STOPS, launcher)
    try:
        cluster.wait_for("ready")
        time.sleep(0.1)  # for the shell to get to its trap
        for _ in range(times):
            os.kill(job.pid, signal.SIGUSR1)
            cluster.wait_for("signals")
        job.communicate(timeout=60)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 75
    assert cluster.calls("scontrol") == ["requeue", "17"]


def test_a_failure_after_the_warning_is_kept(here: Here, cluster: Cluster) -> None:
    behaviour = STOPS.replace("exit 75", "exit 1")
    job = cluster.start(learning(here, "mpiexec", "--requeue"), behaviour)
    try:
        cluster.wait_for("ready")
        time.sleep(0.1)
        os.kill(job.pid, signal.SIGUSR1)
        job.communicate(timeout=60)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 1
    assert cluster.calls("scontrol") == []


@pytest.fixture
def pbs_learning(here: Here) -> Iterator[str]:
    return here("pbs", "--ntasks", 2, "--time", "00:01:01", "--requeue", *LEARN).stdout


def test_under_pbs_the_script_warns_and_submits_itself_again(here: Here, cluster: Cluster, pbs_learning: str) -> None:
    assert cluster.run(pbs_learning, STOPS) == 75  # a second after its start
    assert (cluster.folder / "signals").read_text() == "\n"
    assert cluster.calls("qsub") == [str(cluster.folder / "spooled job.sh")]


@pytest.mark.parametrize("code", [0, 1, 2, 137])
def test_under_pbs_other_exit_codes_are_kept(cluster: Cluster, pbs_learning: str, code: int) -> None:
    assert cluster.run(pbs_learning, f"exit {code}") == code
    assert cluster.calls("qsub") == []


def test_a_pbs_job_works_where_it_was_submitted(here: Here, cluster: Cluster) -> None:
    work = cluster.folder / "a folder"
    work.mkdir()
    cluster.environment = {"PBS_O_WORKDIR": str(work)}
    script = here("pbs", "--ntasks", 1, *ESTIMATE).stdout
    assert cluster.run(script, 'pwd >"$RECORDS/seen"') == 0
    assert (cluster.folder / "seen").read_text() == f"{work}\n"
    work.rmdir()
    (cluster.folder / "mpiexec").unlink()
    assert cluster.run(script) != 0
    assert cluster.calls("mpiexec") == []


def test_no_mpi_is_needed(tmp_path: Path) -> None:
    """Where scripts are written, on a login node, MPI may be missing, or may not be started."""
    (tmp_path / "mpi4py.py").write_text("import os; os._exit(9)")
    search = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    command = [sys.executable, "-m", "mpi_ustat", "batch", "slurm", "--ntasks", "2", *ESTIMATE]
    environment = scrubbed_environment() | {"PYTHONPATH": search}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "mpiexec -n 2" in done.stdout
