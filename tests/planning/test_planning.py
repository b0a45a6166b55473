"""Plans: predicted standard errors against formulas and runs, what is recommended, and the command that does it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from conftest import Mpirun
from sharding import shard

from mpi_ustat.app.options_as_flags import as_flags
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import EstimateConfig, LearnConfig
from mpi_ustat.estimation.estimate import estimate_samples
from mpi_ustat.kernels.kernel import n_tuples
from mpi_ustat.learning.gradient_share import GradientShare, gradient_share
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.planning.plan import Choice, Plan, choose, recommend
from mpi_ustat.planning.ways_to_learn import WayToLearn, recommended, ways_to_learn
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.storage.results import load

SERIAL = SerialComm()
N_WORKERS = 10
SIZES = (3000, 2000)

Here = Callable[..., CompletedProcess[str]]


def samples_of(kernel: str) -> tuple[np.ndarray, ...]:
    """Return 3000 and 2000 points, or 3000 of one sample: with light tails, so that 1000 tell a variance to 5 %."""
    rng = np.random.default_rng(len(kernel))
    n, m = SIZES
    if kernel == "gini":
        return (rng.random(n),)
    if kernel == "kendall":
        x = rng.normal(size=(n, 2))
        x[:, 1] += 0.3 * x[:, 0]
        return (x,)
    return rng.normal(size=n) + 1.0, rng.normal(size=m) + (0.5 if kernel == "product" else 0.0)


def config_of(kernel: str, **options: Any) -> EstimateConfig:
    return EstimateConfig(**{"kernel": kernel, "n_workers": N_WORKERS, "seed": 20, **options})


@pytest.fixture(scope="module", params=["auc", "gini", "product", "kendall"])
def planned(request: pytest.FixtureRequest) -> tuple[str, tuple[np.ndarray, ...], Plan]:
    """A kernel, its samples, and a plan for them."""
    samples = samples_of(request.param)
    return request.param, samples, choose(SERIAL, samples, config_of(request.param))


# ---------------------------------------------------------------------------------------------------------------------
# Standard errors


def test_every_prediction_follows_from_the_pilots_components(
    planned: tuple[str, tuple[np.ndarray, ...], Plan],
) -> None:
    """With N | n, m, written out for each scheme: n_i = n/N, and V_i the variance of a complete block."""
    _, samples, found = planned
    sizes, big_n = [len(sample) for sample in samples], N_WORKERS
    assert (found.sizes, found.n_workers, found.n_ranks) == (tuple(sizes), big_n, 1)
    assert found.pilot_sizes == (1000,) * len(sizes)
    for choice in found.choices:
        t, b = choice.n_rounds, choice.n_pairs
        if len(sizes) == 2:
            (n, m), (var_x, var_z, var_xz) = sizes, found.components
            expected = var_x / n + var_z / m
            factor = {"complete": 1.0, "prop-swor": (big_n + t - 1) / t, "rotation": big_n / t}[choice.scheme]
            expected += factor * var_xz / (n * m)
            variance = var_x + var_z + var_xz
            block = big_n * var_x / n + big_n * var_z / m + big_n**2 * var_xz / (n * m)
            if choice.move == "smaller":  # the same, for blocks of equal size
                assert choice.scheme == "prop-swor"
            sampled = 0.0 if b is None else (variance - block) / (big_n * b * t)
        else:
            (n,), (zeta, delta) = sizes, found.components
            n_0 = n // big_n
            inside = 4 * zeta / n_0 + 2 * delta / (n_0 * (n_0 - 1))
            expected, variance = 4 * zeta / n, 2 * zeta + delta
            if choice.scheme == "rotation":
                pairs = [big_n * n_0 * (n_0 - 1) / 2] + [big_n * n_0**2] * 4 + [n**2 / (2 * big_n)]
                weights = np.array(pairs[:t]) / sum(pairs[:t])
                # the half shift pairs half of a block with a whole one
                crossing = [2 * zeta / n_0 + delta / n_0**2] * 4 + [zeta * 3 / n_0 + 2 * delta / n_0**2]
                inner = np.array([inside, *crossing][:t])
                expected += delta / sum(pairs[:t])
                sampled = 0.0 if b is None else float(weights**2 @ (variance - inner)) / (big_n * b)
            else:
                factor = 0.0 if choice.scheme == "complete" else (big_n - 1) / (t * (n - big_n) * (n - 1))
                expected += 2 * delta * (1 / (n * (n - 1)) + factor)
                sampled = 0.0 if b is None else (variance - inside) / (big_n * b * t)
        assert choice.stderr == pytest.approx(math.sqrt(expected + sampled), rel=1e-12), choice


def test_the_choices_are_those_that_can_be_run(planned: tuple[str, tuple[np.ndarray, ...], Plan]) -> None:
    _, samples, found = planned
    two = len(samples) == 2
    most = N_WORKERS if two else N_WORKERS // 2 + 1
    powers = [1 << k for k in range(7)]
    rounds = {
        ("complete", "both"): [1],
        ("prop-swor", "both"): powers,
        ("rotation", "both"): sorted({min(power, most) for power in powers}),
    }
    if two:
        rounds["prop-swor", "smaller"] = powers
    keys = [(each.scheme, each.move, each.n_rounds, each.n_pairs) for each in found.choices]
    assert len(set(keys)) == len(keys)
    local = n_tuples((1, 1) if two else (2,), [len(sample) // N_WORKERS for sample in samples])
    pairs = [None, *(b for b in (100, 1000, 10_000, 100_000) if 2 * b < local)]
    assert len(pairs) > 2
    assert set(keys) == {
        (*way, t, b) for way, ts in rounds.items() for t in ts for b in (pairs if way[0] != "complete" else [None])
    }
    seconds = [each.seconds for each in found.choices]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0.0
    assert all(value > 0.0 for value in found.measured.values())
    assert all(each.bytes_moved == 0.0 for each in found.choices)  # on one rank
    assert json.loads(json.dumps(found.summary(), allow_nan=False))["recommended"] == asdict(found.recommended)


def test_runs_report_what_was_predicted(planned: tuple[str, tuple[np.ndarray, ...], Plan]) -> None:
    """Within 10 % in the median.

    1000 of the points tell the standard error to 1.7 % (auc, gini) or 2.5 % (product, kendall), and runs over sampled
    pairs know it from fewer, others each time; the first 5 seeds were taken.
    """
    kernel, samples, found = planned
    ratios = []
    for seed in range(5):
        for choice in found.choices:
            if choice.n_rounds not in (1, 4) or (seed > 0 and choice.n_pairs is None):
                continue  # over all pairs, runs of any seed report nearly the same
            options = {"n_workers": N_WORKERS, "seed": seed, **options_of(choice)}
            done = estimate_samples(SERIAL, samples, kernel, **options)
            assert done.error.method == ("pilot" if choice.n_pairs else "components")
            ratios.append(done.stderr / choice.stderr)
            if choice.n_pairs is None:
                assert abs(ratios[-1] - 1.0) < 0.15
    assert len(ratios) > 40
    assert abs(np.median(ratios) - 1.0) < 0.1


def options_of(choice: Choice) -> dict[str, Any]:
    """Return a choice as keywords of `estimate`, from which come the words of the command line."""
    given, words = choice.options(), as_flags(choice.options())
    if choice.scheme == "complete":
        assert (given, words) == ({"complete": True}, ["--complete"])
        return given
    expected = ["--scheme", choice.scheme, "--rounds", str(choice.n_rounds)]
    expected += ["--move", "smaller"] * (choice.move == "smaller")
    assert words == expected + (["--pairs", str(choice.n_pairs)] if choice.n_pairs else [])
    assert given == {name: value for name in ("scheme", "move", "n_rounds", "n_pairs")
                     if (value := getattr(choice, name)) not in (None, "both")}  # fmt: skip
    return given


@pytest.mark.parametrize("kernel", ["auc", "kendall", "vus"])
def test_plans_predict_the_same_at_every_number_of_ranks(comm: Any, kernel: str) -> None:
    """Of unequal blocks, and shards of which some are empty; all ranks have the same plan."""
    rng = np.random.default_rng(4)
    shapes = {"auc": [(230,), (101,)], "kendall": [(203, 2)], "vus": [(60,), (50,), (41,)]}[kernel]
    samples = [rng.normal(size=shape) + k for k, shape in enumerate(shapes)]
    config = config_of(kernel, n_workers=7, aggregate="pooled")
    cuts = np.linspace(0, 1, comm.size) ** 2  # the last rank has none
    own = [
        np.split(sample, (cuts * len(sample)).astype(int)[1:])[comm.rank] if comm.size > 1 else sample
        for sample in samples
    ]
    found = choose(comm, own, config, target_stderr=1.0)
    everyone = comm.allgather(json.dumps(found.summary()))
    assert set(everyone) == {everyone[0]}
    alone = choose(SERIAL, samples, config)
    assert predictions(found) == predictions(alone)
    assert found.components.tobytes() == alone.components.tobytes()
    moving = [each for each in found.choices if each.scheme == "prop-swor"]
    assert all((each.bytes_moved > 0.0) == (comm.size > 1) for each in moving)


def predictions(found: Plan) -> dict[tuple[Any, ...], float]:
    return {(each.scheme, each.move, each.n_rounds, each.n_pairs): each.stderr for each in found.choices}


@pytest.mark.parametrize("kernel", ["auc", "gini"])
def test_one_worker_and_as_many_as_can_be(kernel: str) -> None:
    rng = np.random.default_rng(8)
    samples = (rng.normal(size=24), rng.normal(size=20))[: 1 if kernel == "gini" else 2]
    for n_workers in (1, 12 if kernel == "gini" else 20):
        found = choose(SERIAL, samples, config_of(kernel, n_workers=n_workers))
        best = min(each.stderr for each in found.choices)
        complete = next(each for each in found.choices if each.scheme == "complete")
        assert complete.stderr == pytest.approx(best, rel=1e-12)
        if n_workers == 1:
            everything = [each.stderr for each in found.choices if each.n_pairs is None]
            assert everything == pytest.approx([best] * len(everything), rel=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# What is recommended


def choice(stderr: float, seconds: float, n_rounds: int = 1) -> Choice:
    return Choice("prop-swor", "both", n_rounds, None, stderr, seconds, 0.0)


CHOICES = [choice(0.5, 1.0), choice(0.2, 2.0), choice(0.3, 3.0), choice(0.1, 4.0), choice(0.1, 5.0)]


@pytest.mark.parametrize(
    ("target", "budget", "expected"),
    [
        (0.6, None, 0),  # the quickest within the target
        (0.5, None, 0),
        (0.4, None, 1),
        (0.1, None, 3),
        (0.09, None, None),
        (None, 0.5, None),
        (None, 1.0, 0),
        (None, 3.5, 1),  # the most exact in the budget, which is not the one that uses it up
        (None, 9.0, 3),  # of equal ones the quickest
        (None, None, 3),
    ],
)
def test_recommendations(target: float | None, budget: float | None, expected: int | None) -> None:
    for choices in (CHOICES, CHOICES[::-1]):
        found = recommend(choices, target_stderr=target, budget_seconds=budget)
        assert found is (None if expected is None else CHOICES[expected])


def test_what_rounding_tells_apart_is_equal() -> None:
    """The complete statistic is no worse than a rotation over all rounds, whatever the last digit says."""
    quick, slow = choice(0.1, 1.0), choice(np.nextafter(0.1, 0.0), 9.0, n_rounds=64)
    assert recommend([quick, slow]) is quick
    assert recommend([quick, slow], budget_seconds=10.0) is quick


def test_of_no_choices_none_is_recommended() -> None:
    assert recommend([]) is None
    assert recommend([], target_stderr=1.0) is None


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("auc", {"target_stderr": 0.1, "budget_seconds": 1.0}, "a target and a budget are given: leave one of them"),
        ("auc", {"target_stderr": 0.0}, "the standard error is 0.0: give a positive number"),
        ("auc", {"target_stderr": math.nan}, "the standard error is nan: give a positive number"),
        ("auc", {"budget_seconds": -1.0}, "the number of seconds is -1.0: give a positive number"),
        ("energy", {}, "the variance of the kernel energy has no closed form to plan with: run it with complete=True"),
        ("mmd", {}, "the variance of the kernel mmd has no closed form"),
        ("similarity-histogram", {}, "a plan is for one statistic"),
        ("variance", {}, "the kernel variance is for 1 sample, not 2"),
    ],
)
def test_refusals(comm: Any, kernel: str, options: dict[str, Any], message: str) -> None:
    rng = np.random.default_rng(2)
    samples = [rng.normal(size=40) for _ in range(2)]
    own = [np.array_split(sample, comm.size)[comm.rank] for sample in samples]
    with pytest.raises(UserError) as caught:
        choose(comm, own, config_of(kernel, n_workers=4), **options)
    assert message in str(caught.value)


def test_points_without_a_variance_have_no_plan() -> None:
    with pytest.raises(UserError, match="the pilot's variance is not positive"):
        choose(SERIAL, (np.ones(40),), config_of("gini", n_workers=4))
    with pytest.raises(UserError, match="25 workers can't each have 2 point"):
        choose(SERIAL, (np.arange(40.0),), config_of("gini", n_workers=25))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_variance_that_overflows_has_no_plan_either() -> None:
    with pytest.raises(UserError, match="the pilot's variance is not positive"):
        choose(SERIAL, (np.linspace(-1e200, 1e200, 60),), config_of("gini", n_workers=4))


# ---------------------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made the current one, with a file of scores: a, b, classes 0, 1, 2 in y, and 0, 1 in two."""
    rng = np.random.default_rng(6)
    y = rng.integers(0, 3, size=400)
    a, b = rng.normal(size=400) + y, rng.normal(size=400) + 0.5 * y
    rows = zip(a.tolist(), b.tolist(), y.tolist(), (y > 0).astype(int).tolist(), strict=True)
    (tmp_path / "d.csv").write_text("a,b,y,two\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def result_of(done: CompletedProcess[str]) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def refusal(done: CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mpi-ustat: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


STATISTICS = [
    ["--columns", "a", "--label", "two"],
    ["--columns", "a", "--label", "two", "--positive", "0", "--ties", "strict", "--aggregate", "pooled"],
    ["--columns", "a,b", "--kernel", "kendall", "--tau", "a"],
    ["--columns", "a", "--kernel", "vus", "--label", "y"],
    ["--columns", "a", "--kernel", "vus", "--label", "y", "--classes", "2,0", "--ties", "shared"],
    ["--columns", "a,b", "--kernel", "similarity-histogram", "--edges=-1,0.5", "--metric", "cosine"],
    ["--columns", "a,b", "--label", "two", "--kernel", "fmr", "--threshold", "-0.5"],
]


@pytest.mark.parametrize("options", STATISTICS)
def test_the_command_reaches_the_target(here: Here, data: Path, options: list[str]) -> None:
    known = result_of(here("plan", "d.csv", *options, "--workers", 4, "--seed", 1, "--json"))
    best = min(each["stderr"] for each in known["choices"])
    target = 1.05 * best
    found = result_of(here("plan", "d.csv", *options, "--workers", 4, "--target-stderr", target, "--json"))
    within = [each for each in found["choices"] if each["stderr"] <= target]
    assert found["recommended"] == min(within, key=lambda each: each["seconds"])
    words = shlex.split(found["command"])
    assert words[:3] == ["mpi-ustat", "estimate", "d.csv"]
    done = result_of(here(*words[1:], "--json"))
    # All 400 points made the prediction; a run over sampled pairs, if that was the quickest, may see half of them.
    assert done["stderr"] < (1.3 if done["stderr_method"] == "pilot" else 1.1) * target
    assert done["n_workers"] == 4
    wanted = found["recommended"]
    if wanted["scheme"] == "complete":
        assert done["complete"]
    else:
        assert (done["scheme"], done["n_rounds"]) == (wanted["scheme"], wanted["n_rounds"])
        assert done["pairs_per_worker"] == wanted["n_pairs"]
        assert done["aggregate"] == ("mean" if wanted["scheme"] != "rotation" and "pooled" not in options else "pooled")


@pytest.mark.parametrize("options", STATISTICS)
@pytest.mark.parametrize(
    ("scheme", "move", "n_rounds", "n_pairs"),
    [("complete", "both", 1, None), ("prop-swor", "both", 2, 100), ("rotation", "both", 3, None)],
)
def test_every_choice_has_a_command_that_does_it(
    here: Here,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    scheme: str,
    move: str,
    n_rounds: int,
    n_pairs: int | None,
) -> None:
    """Whatever is the quickest on the machine of the day."""
    forced = Choice(scheme, move, n_rounds, n_pairs, 0.1, 1.0, 0.0)
    monkeypatch.setattr("mpi_ustat.planning.plan.recommend", lambda choices, **_: choices.append(forced) or forced)
    found = result_of(here("plan", "d.csv", *options, "--workers", 4, "--json"))
    done = result_of(here(*shlex.split(found["command"])[1:], "--seed", 3, "--json"))
    assert done["n_workers"] == 4
    assert done["complete"] == (scheme == "complete")
    if scheme != "complete":
        assert (done["scheme"], done["n_rounds"], done["pairs_per_worker"]) == (scheme, n_rounds, n_pairs)
    assert done["stderr"] > 0.0
    assert done["sizes"] == found["sizes"]
    given = dict(zip(options[::2], options[1::2], strict=False))
    assert done["kernel"] == given.get("--kernel", "auc")
    assert done["ties"] == (given.get("--ties") or {"auc": "half", "vus": "strict"}.get(done["kernel"]))


def test_the_table_joins_the_quickest_and_most_exact(here: Here, data: Path) -> None:
    done = here("plan", "d.csv", "--columns", "a", "--label", "two", "--workers", 4, "--seed", 1)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split()[0].isdecimal()
    assert lines[0].endswith("those that none is both as quick and as exact as.")
    rows = [line for line in lines[3:] if line.startswith(("complete", "prop-swor", "rotation"))]
    assert sum(row.endswith("<- recommended") for row in rows) == 1
    assert lines[-1].startswith("mpi-ustat estimate d.csv --label two --columns a --workers 4 ")
    last: dict[str, float] = {}
    for row in rows:
        way, words = row[:20].strip(), row[20:].replace("<- recommended", "").split()
        rounds, _, stderr, seconds, moved = words
        assert int(rounds) >= 1
        assert float(seconds) > 0.0
        assert float(moved) == 0.0
        assert float(stderr) <= last.get(way, math.inf)  # in the order of seconds
        last[way] = float(stderr)


def test_a_target_out_of_reach_and_a_budget_too_small(here: Here, data: Path) -> None:
    options = ["plan", "d.csv", "--columns", "a", "--label", "two", "--workers", 4]
    done = here(*options, "--target-stderr", 1e-6)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("No way reaches 1e-06: these points allow 0.")
    assert "recommended" not in done.stdout
    done = here(*options, "--budget-seconds", 1e-12)
    assert done.stdout.splitlines()[-1] == "No way takes less than 1e-12 s."
    found = result_of(here(*options, "--budget-seconds", 1e-12, "--json"))
    assert found["recommended"] is found["command"] is None


@pytest.mark.parametrize("target", [None, 1e-9])
def test_the_file_of_a_plan_and_its_picture(here: Here, data: Path, target: float | None) -> None:
    pytest.importorskip("matplotlib")
    options = ["d.csv", "--columns", "a,b", "--kernel", "kendall", "--workers", 4, "--seed", 9, "--output", "p.h5"]
    options += [] if target is None else ["--target-stderr", target]
    found = result_of(here("plan", *options, "--json"))
    file = load("p.h5")
    assert file.kind == "plan"
    values = {name: dataset.values for name, dataset in file.datasets.items()}
    n_choices = len(found["choices"])
    for name in ("scheme", "n_rounds", "n_pairs", "stderr", "seconds", "bytes_moved"):
        assert values[name].shape == (n_choices,)
        assert file.datasets[name].dims == ("choice",)
    assert values["stderr"].tolist() == [each["stderr"] for each in found["choices"]]
    assert values["seconds"].tolist() == [each["seconds"] for each in found["choices"]]
    assert values["n_pairs"].tolist() == [each["n_pairs"] or 0 for each in found["choices"]]
    assert values["components"].tolist() == found["components"]
    chosen = int(values["recommended"])
    assert (found["choices"][chosen] if chosen >= 0 else None) == found["recommended"]
    assert file.config["command"] == found["command"]
    assert {"kernel": "kendall", "sizes": [400], "n_ranks": 1, "target_stderr": target}.items() <= file.config.items()
    assert str(data) not in json.dumps(file.config)
    shown = here("info", "p.h5")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "kind: plan" in shown.stdout
    drawn = here("plot", "p.h5")
    assert (drawn.returncode, drawn.stdout, drawn.stderr) == (0, "p.png\n", "")
    assert (data / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "'p.h5' exists" in refusal(here("plan", *options))
    assert here("plan", *options, "--overwrite").returncode == 0


def test_a_plan_of_several_ranks_starts_as_many(mpirun: Mpirun, data: Path) -> None:
    pytest.importorskip("matplotlib")
    options = ["--columns", "a", "--label", "two", "--workers", 5, "--output", "p.h5", "--json"]
    found = result_of(mpirun(2, "plan", "d.csv", *options, cwd=data))
    words = shlex.split(found["command"])
    assert words[:6] == ["mpiexec", "-n", "2", "mpi-ustat", "estimate", "d.csv"]
    assert (found["n_ranks"], found["n_workers"]) == (2, 5)
    moving = [each["bytes_moved"] for each in found["choices"] if each["scheme"] == "prop-swor"]
    assert min(moving) > 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target-stderr", "0.1", "--budget-seconds", "1"], "a target and a budget are given"),
        (["--target-stderr", "0"], "the standard error is 0.0"),
        (["--workers", "300"], "300 workers can't each have a point of a sample of"),
        (["--workers", "0"], "the number of workers is 0"),
        (
            ["--columns", "a,b"],
            "the kernel auc compares single numbers but the sample x has 2 columns: choose one column",
        ),
        (["--kernel", "energy"], "the variance of the kernel energy has no closed form"),
        (["--tau", "a"], "the kernel auc has no option tau"),
        (["--output", "nowhere/p.h5"], "the folder of 'nowhere/p.h5' does not exist"),
        (["--learn", "--target-stderr", "1"], "--learn asks another question: leave out --target-stderr"),
        (["--learn", "--output", "p.h5"], "--learn asks another question"),
        (["--learn", "--batch-pairs", "0"], "the number of pairs per worker is 0"),
        (["--learn", "--kernel", "vus", "--label", "y"], "--learn is for two samples"),
    ],
)
def test_a_users_mistake_is_told_in_one_sentence(here: Here, data: Path, options: list[str], message: str) -> None:
    before = sorted(data.iterdir())
    told = refusal(here("plan", "d.csv", "--columns", "a", "--label", "two", *options))
    assert message in told
    assert sorted(data.iterdir()) == before


def test_learning_from_one_sample_is_refused(here: Here, data: Path) -> None:
    assert "--learn is for two samples" in refusal(
        here("plan", "d.csv", "--columns", "a", "--kernel", "gini", "--learn")
    )


# ---------------------------------------------------------------------------------------------------------------------
# Where the variance of gradients comes from


def by_hand(
    x: np.ndarray, z: np.ndarray, slope: Callable[[Fraction], Fraction], w: Sequence[int], n_workers: int, batch: int
) -> tuple[Fraction, ...]:
    """Return the three parts and the share from all pairs, by the definitions, in rational numbers.

    ∇h = φ'(u)(x - z), u = w·(x - z). For each coordinate the pairs are a two-way layout without replication, whose mean
    squares have the expectations MS_rows: m σ_x² + σ_xz², MS_columns: n σ_z² + σ_xz², MS_rest: σ_xz².
    """
    rows = [[Fraction(v) for v in row] for row in x.tolist()]
    columns = [[Fraction(v) for v in row] for row in z.tolist()]
    n, m = len(rows), len(columns)
    var_x = var_z = var_xz = Fraction(0)
    for j in range(len(w)):
        h = [
            [
                slope(sum((Fraction(wi) * (a - b) for wi, a, b in zip(w, row, column, strict=True)), Fraction(0)))
                * (row[j] - column[j])
                for column in columns
            ]
            for row in rows
        ]
        of_rows = [sum(row, Fraction(0)) / m for row in h]
        of_columns = [sum(column, Fraction(0)) / n for column in zip(*h, strict=True)]
        mean = sum(of_rows, Fraction(0)) / n
        ms_rows = m * sum(((r - mean) ** 2 for r in of_rows), Fraction(0)) / (n - 1)
        ms_columns = n * sum(((c - mean) ** 2 for c in of_columns), Fraction(0)) / (m - 1)
        rest = sum(
            ((h[k][q] - of_rows[k] - of_columns[q] + mean) ** 2 for k in range(n) for q in range(m)), Fraction(0)
        ) / ((n - 1) * (m - 1))
        var_x += (ms_rows - rest) / m
        var_z += (ms_columns - rest) / n
        var_xz += rest
    points = var_x / n + var_z / m + var_xz / (n * m)
    sizes = [np.diff(block_bounds(size, n_workers)).tolist() for size in (n, m)]
    local = sampled = Fraction(0)
    for n_i, m_i in zip(*sizes, strict=True):
        complete = var_x / n_i + var_z / m_i + var_xz / (n_i * m_i)
        local += complete / n_workers**2
        sampled += (complete + (var_x + var_z + var_xz - complete) / batch) / n_workers**2
    return points, local - points, sampled - local, (local - points) / sampled


@pytest.mark.parametrize(("n_workers", "batch"), [(1, 3), (2, 5), (3, 1), (4, 100)])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
def test_shares_are_what_all_pairs_give(comm: Any, loss: str, n_workers: int, batch: int) -> None:
    rng = np.random.default_rng(n_workers)
    x, z = rng.integers(-3, 6, size=(7, 2)).astype(float), rng.integers(-4, 4, size=(5, 2)).astype(float)
    w = [1, -2]
    slopes: dict[str, Callable[[Fraction], Fraction]] = {
        "hinge": lambda u: Fraction(-1 if u < 4 else 0),
        "squared-hinge": lambda u: -2 * max(Fraction(0), 4 - u),
    }
    cut = [np.array_split(each, comm.size + 1)[comm.rank + 1] for each in (x[2:], z[1:])]
    first = comm.rank == comm.size - 1  # the ranks' order is the points': the rest goes to the last one
    own = [np.concatenate([part, extra[: len(extra) if first else 0]]) for part, extra in zip(cut, (x, z), strict=True)]
    everyone = comm.allgather(own)
    whole = [np.concatenate([each[k] for each in everyone]) for k in (0, 1)]
    found = gradient_share(
        comm,
        own,
        LinearRanking(loss, margin=4.0),
        np.array(w, dtype=float),
        n_workers=n_workers,
        batch_pairs=batch,
        seed=1,
    )
    expected = by_hand(*whole, slopes[loss], w, n_workers, batch)
    got = (found.points, found.unseen_pairs, found.sampling, found.share)
    assert got == pytest.approx([float(each) for each in expected], rel=1e-11, abs=1e-13)
    if n_workers == 1:
        assert found.unseen_pairs == pytest.approx(0.0, abs=1e-13)
    alone = gradient_share(
        SERIAL,
        whole,
        LinearRanking(loss, margin=4.0),
        np.array(w, dtype=float),
        n_workers=n_workers,
        batch_pairs=batch,
        seed=1,
    )
    assert found == alone


def gaussian(n: int, m: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) + np.array([1.5, 0.0, 0.0]), rng.normal(size=(m, 3))


def share_of(n_workers: int, batch: int | None, *, samples: Any = None, loss: str = "logistic") -> GradientShare:
    return gradient_share(
        SERIAL,
        gaussian(120, 120, 1) if samples is None else samples,
        LinearRanking(loss),
        np.array([1.0, 0.2, 0.0]),
        n_workers=n_workers,
        batch_pairs=batch,
        seed=3,
    )


def test_the_share_is_larger_where_workers_have_few_points() -> None:
    shares = [share_of(n_workers, 10).share for n_workers in (1, 4, 20, 60, 120)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.0, abs=1e-12)
    assert shares[-1] > 5 * shares[1] > 0.0
    # With one point of each class a worker has one pair, which sampling can but repeat.
    single = share_of(120, 10)
    assert single.sampling == pytest.approx(0.0, abs=1e-12)
    assert share_of(4, None).sampling == 0.0
    assert share_of(4, 10).sampling == pytest.approx(10 * share_of(4, 100).sampling, rel=1e-9)
    assert share_of(4, 10).points == share_of(20, 100).points


def test_without_any_gradient_there_is_no_share() -> None:
    x, z = np.full((20, 3), 9.0), np.full((15, 3), -9.0)  # far beyond the margin
    assert share_of(5, 10, samples=(x, z), loss="hinge") == GradientShare(0.0, 0.0, 0.0, 0.0)


def test_the_parts_are_variances_of_gradients() -> None:
    """Of 3000 draws of 12 + 8 points: the whole gradient, the mean of 4 blocks' gradients, and of 2 pairs in each.

    The mean of the estimates against the variance of what they are of, over coordinates; 5 standard errors of the
    difference, as independent: wrong by chance once in 10⁶.
    """
    objective, w = LinearRanking("squared-hinge"), np.array([0.6, 0.2, 0.0])
    n_draws, n, m, n_workers, batch = 3000, 12, 8, 4, 2
    rng = np.random.default_rng(12)
    estimates, gradients = np.empty((n_draws, 3)), np.empty((n_draws, 3, 3))
    for r in range(n_draws):
        x, z = rng.normal(size=(n, 3)) + np.array([1.5, 0.0, 0.0]), rng.normal(size=(m, 3))
        found = gradient_share(SERIAL, (x, z), objective, w, n_workers=n_workers, batch_pairs=batch, seed=0)
        estimates[r] = np.cumsum([found.points, found.unseen_pairs, found.sampling])
        pairs = objective.gradients(w, np.repeat(x, m, axis=0)[:, None], np.tile(z, (n, 1))[:, None]).reshape(n, m, 3)
        blocks = [
            pairs[i * 3 : i * 3 + 3, i * 2 : i * 2 + 2].reshape(-1, 3) for i in range(n_workers)
        ]  # points are independent: any blocks will do
        drawn = [block[rng.integers(0, len(block), size=batch)] for block in blocks]
        gradients[r] = [
            pairs.mean(axis=(0, 1)),
            np.mean([block.mean(axis=0) for block in blocks], axis=0),
            np.mean([each.mean(axis=0) for each in drawn], axis=0),
        ]
    squares = np.sum((gradients - gradients.mean(axis=0)) ** 2, axis=2) * n_draws / (n_draws - 1)
    for k in range(3):
        error = math.hypot(*(np.std(each[:, k]) / math.sqrt(n_draws) for each in (estimates, squares)))
        assert abs(estimates[:, k].mean() - squares[:, k].mean()) < 5 * error
        assert error < 0.05 * squares[:, k].mean()


def test_learning_prints_shares(here: Here, data: Path) -> None:
    options = ["plan", "d.csv", "--columns", "a,b", "--label", "two", "--learn", "--seed", 2, "--batch-pairs", 20]
    found = {n: result_of(here(*options, "--workers", n, "--json")) for n in (2, 100)}
    for each in found.values():
        assert set(each) == {"at zero", "after 200 steps", "ways", "recommended"}
        assert each["recommended"] in [way["options"] for way in each["ways"]] or "optimizer" in each["recommended"]
        assert len(each["ways"]) == 5
        for way in each["ways"]:
            assert way["seconds"] > 0.0 and way["n_bytes"] == 0.0  # of one rank
        for share in (each["at zero"], each["after 200 steps"]):
            whole = share["points"] + share["unseen_pairs"] + share["sampling"]
            assert share["share"] == pytest.approx(share["unseen_pairs"] / whole, rel=1e-12)
            assert share["points"] > 0.0
    for place in ("at zero", "after 200 steps"):
        assert found[100][place]["share"] > 3 * found[2][place]["share"]
    done = here(*options, "--workers", 2, "--loss", "logistic")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "Variance of the mean gradient of 2 workers, 20 pairs each, by where it comes from"
    assert [line[:18].strip() for line in lines[4:6]] == ["at zero", "after 200 steps"]
    assert lines[4].endswith(" %")
    assert lines[7].startswith("Repartitioning hardly pays: ")
    assert lines[-1].startswith("Recommended: --")


def test_the_way_to_learn_that_is_recommended() -> None:
    def ways(never: float, seldom: float, always: float, drawn: float, everything: float) -> list[WayToLearn]:
        of_rows = ((None, never), (25, seldom), (1, always))
        rows = [WayToLearn({"repartition_every": n}, s, 0.0, n != 1) for n, s in of_rows]
        of_scores = [
            WayToLearn({"exchange": "scores", "batch_points": n}, s, 0.0, False)
            for n, s in ((10, drawn), (None, everything))
        ]
        return [*rows, *of_scores]

    def best(*seconds: float, loss: str = "logistic", unseen_matter: bool = False) -> dict[str, Any]:
        return recommended(ways(*seconds), 1000, loss, unseen_matter=unseen_matter)

    assert best(1.0, 2.0, 9.0, 3.0, 19.0) == {"exchange": "scores", "batch_points": None, "optimizer": "lbfgs"}
    assert best(1.0, 2.0, 9.0, 3.0, 19.0, loss="hinge") == {"exchange": "scores", "batch_points": None}
    assert best(1.0, 2.0, 9.0, 3.0, 99.0) == {"repartition_every": 25}
    assert best(1.0, 2.0, 9.0, 3.0, 99.0, unseen_matter=True) == {"exchange": "scores", "batch_points": 10}
    assert best(1.0, 2.0, 2.5, 3.0, 99.0, unseen_matter=True) == {"repartition_every": 1}


def test_scores_of_a_step_are_counted_where_ranks_send_them(comm: Any) -> None:
    x, z = (np.random.default_rng(k).normal(size=(40, 3)) for k in (1, 2))
    config = LearnConfig(n_workers=4, batch_pairs=5, seed=1)
    found = ways_to_learn(comm, (shard(comm, x), shard(comm, z)), config)
    gradients = 8 * (3 * 4 + comm.size) * (comm.size - 1)
    by_points = {each.options["batch_points"]: each.n_bytes for each in found if "exchange" in each.options}
    assert by_points[None] == 8 * 80 * (comm.size - 1) + gradients
    assert by_points[10] == 8 * 2 * 4 * 10 * (comm.size - 1) + gradients
