"""`mpi-ustat reproduce`: the same datasets however it is run, also after a violent end, and what the datasets hold."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import h5py
import numpy as np
import paper_variances
import pytest
from commands import refusal
from conftest import Mpirun, run_alone
from numpy.typing import NDArray

from mpi_ustat import SerialComm, estimate
from mpi_ustat.app import reproduce_command
from mpi_ustat.app.cli import main
from mpi_ustat.app.exit_codes import STOPPED
from mpi_ustat.estimation.config import SimulationConfig
from mpi_ustat.paper import montecarlo, theory
from mpi_ustat.paper.experiments import EPSILONS, PANELS, _variance, make_experiment
from mpi_ustat.paper.models import (
    normal_product,
    two_point_auc,
    two_point_auc_informative,
    two_point_auc_relative_variance,
)
from mpi_ustat.paper.montecarlo import Simulation, Values
from mpi_ustat.schemes.swor import swor_bias_factor
from mpi_ustat.storage.results import ResultFile, load

pytest.importorskip("matplotlib")

Floats = NDArray[np.float64]

N_RUNS = 4
OPTIONS = ("--quick", "--runs", N_RUNS, "--quiet")
FIGURES = ("fig1", "fig2", "fig3", "fig5", "fig6")
SUFFIXES = (".h5", ".png", ".pdf")
N, M, N_WORKERS = 100_000, 200, 100
"""Sizes of figures 2, 5 and 6."""


# ---------------------------------------------------------------------------------------------------------------------
# Running, and comparing


Here = Callable[..., CompletedProcess[str]]

COMMAND = ("reproduce",)


@pytest.fixture(scope="module")
def reference(mpirun: Mpirun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all figures, each made without interruption, on one rank."""
    folder = tmp_path_factory.mktemp("reference")
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_alone(monkeypatch)
        assert main(["reproduce", "all-estimation", *map(str, OPTIONS), "--folder", str(folder)]) == 0
    return folder


def assert_same_results(result: ResultFile, expected: ResultFile) -> None:
    """Check that nothing but the provenance differs."""
    assert (result.kind, result.config) == (expected.kind, expected.config)
    assert result.datasets.keys() == expected.datasets.keys()
    for name, wanted in expected.datasets.items():
        found = result.datasets[name]
        assert (found.dims, found.unit, found.description) == (wanted.dims, wanted.unit, wanted.description)
        assert (found.values.dtype, found.values.shape) == (wanted.values.dtype, wanted.values.shape)
        assert found.values.tobytes() == wanted.values.tobytes(), name
    assert result.scales.keys() == expected.scales.keys()
    for name, scale in expected.scales.items():
        assert result.scales[name].tobytes() == scale.tobytes()


def assert_drawn(folder: Path, figure: str) -> None:
    """Check that a finished figure's three files are there, and nothing else of it."""
    assert (folder / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
    left = {path.name for path in folder.iterdir() if path.name.startswith((figure, "."))}
    assert left == {figure + suffix for suffix in SUFFIXES}


def values_of(result: ResultFile, start: str, *parts: str) -> list[NDArray[Any]]:
    return [result.datasets[f"{start}/{part}"].values for part in parts]


# ---------------------------------------------------------------------------------------------------------------------
# However it is run


def test_all_figures_are_made_in_one_go(reference: Path) -> None:
    for figure in FIGURES:
        assert_drawn(reference, figure)
        result = load(reference / f"{figure}.h5")
        assert result.kind == figure
        assert result.provenance["n_ranks"] == 1
        assert result.config["figure"] == figure
    assert len(list(reference.iterdir())) == len(FIGURES) * len(SUFFIXES)


@pytest.mark.parametrize(
    ("figure", "n_ranks", "spread"),
    [("fig3", 4, "runs"), ("fig5", 3, "runs"), ("fig3", 2, "workers"), ("fig5", 2, "workers")],
)
def test_the_datasets_are_the_same_however_the_runs_are_spread(
    mpirun: Mpirun, reference: Path, tmp_path: Path, figure: str, n_ranks: int, spread: str
) -> None:
    folder = tmp_path / "new" / "folder"
    done = mpirun(
        n_ranks, "reproduce", figure, *OPTIONS, "--spread", spread, "--folder", folder, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1 and str(folder / f"{figure}.h5") in done.stdout
    assert done.stderr == ""
    assert_drawn(folder, figure)
    result = load(folder / f"{figure}.h5")
    assert result.provenance["n_ranks"] == n_ranks
    assert_same_results(result, load(reference / f"{figure}.h5"))


def test_another_seed_gives_other_runs_and_the_same_theory(here: Here, reference: Path, tmp_path: Path) -> None:
    done = here("fig3", *OPTIONS, "--seed", 100, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    result, expected = load(tmp_path / "fig3.h5"), load(reference / "fig3.h5")
    assert result.config == expected.config | {"seed": 100}
    for name in ("plain/runs/complete", "conditional/runs/local"):
        assert not np.array_equal(result.datasets[name].values, expected.datasets[name].values)
    for name in ("exact/local", "curve/repartitioned", "conditional/probability"):
        np.testing.assert_array_equal(result.datasets[name].values, expected.datasets[name].values)


def test_moving_the_smaller_sample_gives_other_rounds_of_the_same_samples(
    here: Here, reference: Path, tmp_path: Path
) -> None:
    done = here("fig3", *OPTIONS, "--move", "smaller", "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    result, expected = load(tmp_path / "fig3.h5"), load(reference / "fig3.h5")
    assert result.config == expected.config | {"move": "smaller"}
    for kind in ("plain", "conditional"):
        complete, local = values_of(result, f"{kind}/runs", "complete", "local")
        both_complete, both_local = values_of(expected, f"{kind}/runs", "complete", "local")
        np.testing.assert_array_equal(complete, both_complete)
        np.testing.assert_array_equal(local[:, :, 0], both_local[:, :, 0])  # in round 0 both move
        assert not np.array_equal(local, both_local)


# ---------------------------------------------------------------------------------------------------------------------
# After a violent end

KILLED_AFTER_SAVES = """
import os, signal, sys
from mpi_ustat.paper import montecarlo
from mpi_ustat.app import reproduce_command
from mpi_ustat.app.cli import console

montecarlo._SECONDS_PER_CHUNK = reproduce_command._SECONDS_BETWEEN_SAVES = 0.0
saves, write = int(sys.argv.pop(1)), reproduce_command._write_partial

def write_and_die(*arguments):
    global saves
    write(*arguments)
    saves -= 1
    if saves == 0:
        os.kill(os.getpid(), signal.SIGKILL)

reproduce_command._write_partial = write_and_die
console()
"""


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of the first run that each simulation in this process has done, or R if there was none to do."""
    found: list[int] = []
    by_one_rank = Simulation.by_one_rank

    def recorded(study: Simulation) -> Callable[[range], Values]:
        do, i = by_one_rank(study), len(found)
        found.append(study.n_runs)

        def run(runs: range) -> Values:
            found[i] = min([found[i], *runs])
            return do(runs)

        return run

    monkeypatch.setattr(Simulation, "by_one_rank", recorded)
    return found


def runs_kept(partial: Path) -> list[int]:
    """Return how many runs of each simulation a partial file holds."""
    datasets = load(partial).datasets
    return [len(dataset.values) for name, dataset in datasets.items() if name.endswith("/complete")]


@pytest.mark.parametrize(
    ("figure", "n_ranks", "saves", "kept", "started"),
    [
        # One rank saves after every run: 6 whole simulations, and 3 runs of the seventh.
        ("fig3", 0, 27, [4] * 6 + [3], [4] * 6 + [3] + [0] * 5),
        ("fig5", 0, 5, [4, 1], [4, 1]),
        # Two ranks do two runs between saves.
        ("fig3", 2, 1, [2], [2] + [0] * 11),
    ],
)
def test_what_was_killed_goes_on_and_gives_the_same_datasets(
    mpirun: Mpirun,
    here: Here,
    starts: list[int],
    reference: Path,
    tmp_path: Path,
    figure: str,
    n_ranks: int,
    saves: int,
    kept: list[int],
    started: list[int],
) -> None:
    arguments = (figure, *OPTIONS, "--folder", tmp_path)
    killed = mpirun(n_ranks, saves, "reproduce", *arguments, program=("-c", KILLED_AFTER_SAVES), timeout=120)
    assert killed.returncode != 0
    partial = tmp_path / f"{figure}.partial.h5"
    assert [path.name for path in tmp_path.iterdir()] == [partial.name]
    assert sorted(runs_kept(partial), reverse=True) == kept

    done = here(*arguments)
    assert done.returncode == 0, done.stderr
    assert starts == started
    assert_drawn(tmp_path, figure)
    assert_same_results(load(tmp_path / f"{figure}.h5"), load(reference / f"{figure}.h5"))


@pytest.fixture
def interrupted(here: Here, tmp_path: Path) -> Path:
    """A folder with what is left of a fig3 that was interrupted in its third simulation."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(montecarlo, "_SECONDS_PER_CHUNK", 0.0)
        monkeypatch.setattr(reproduce_command, "_SECONDS_BETWEEN_SAVES", 0.0)
        write, saves = reproduce_command._write_partial, []

        def write_and_stop(*arguments: Any) -> None:
            write(*arguments)
            saves.append(1)
            if len(saves) == 2 * N_RUNS + 1:
                raise KeyboardInterrupt

        monkeypatch.setattr(reproduce_command, "_write_partial", write_and_stop)
        done = here("fig3", *OPTIONS, "--folder", tmp_path)
        told = "mpi-ustat: interrupted, the runs so far are in "
        assert (done.returncode, done.stderr.startswith(told), done.stderr.count("\n")) == (130, True, 1), done.stderr
    return tmp_path


SIGNALLED_IN_A_RUN = """
import os, signal, sys
from mpi_ustat.paper import montecarlo
from mpi_ustat.app.cli import console
from mpi_ustat.mpi.launch import world

montecarlo._SECONDS_PER_CHUNK = 0.0
number, by_one_rank = int(sys.argv.pop(1)), montecarlo.Simulation.by_one_rank
last, seen = world().rank == world().size - 1, []

def signalled(study):
    do = by_one_rank(study)
    def run(runs):
        seen.append(runs)
        if last and len(seen) == 3:
            os.kill(os.getpid(), number)
        return do(runs)
    return run

montecarlo.Simulation.by_one_rank = signalled
console()
"""


@pytest.mark.parametrize(("n_ranks", "number"), [(0, signal.SIGTERM), (2, signal.SIGUSR1)])
def test_a_signal_to_one_rank_stops_after_the_runs_under_way(
    mpirun: Mpirun, here: Here, starts: list[int], reference: Path, tmp_path: Path, n_ranks: int, number: int
) -> None:
    arguments = ("all-estimation", *OPTIONS, "--folder", tmp_path)
    program = ("-c", SIGNALLED_IN_A_RUN)
    done = mpirun(n_ranks, int(number), "reproduce", *arguments, program=program, timeout=120)
    # The first two figures have no such runs. What is done by then stays done.
    partial = tmp_path / "fig3.partial.h5"
    told = f"mpi-ustat: stopped, the runs so far are in {partial}: start it again with the same options to go on"
    assert (done.returncode, done.stdout.count("\n")) == (STOPPED, 2), done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("mpi-ustat")] == [told]
    assert {path.name for path in tmp_path.iterdir()} == {
        partial.name,
        *(f + each for f in ("fig1", "fig2") for each in SUFFIXES),
    }
    kept = runs_kept(partial)
    assert sum(kept) == 3 * max(n_ranks, 1)

    done = here("fig3", *OPTIONS, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    assert starts[: len(kept)] == kept
    assert_drawn(tmp_path, "fig3")
    assert_same_results(load(tmp_path / "fig3.h5"), load(reference / "fig3.h5"))


def test_several_ranks_go_on_from_what_one_has_left(mpirun: Mpirun, interrupted: Path, reference: Path) -> None:
    assert runs_kept(interrupted / "fig3.partial.h5") == [4, 4, 1]
    arguments = ("reproduce", "fig3", *OPTIONS, "--spread", "workers", "--folder", interrupted)
    done = mpirun(2, *arguments, timeout=120)
    assert done.returncode == 0, done.stderr
    assert_drawn(interrupted, "fig3")
    assert_same_results(load(interrupted / "fig3.h5"), load(reference / "fig3.h5"))


@pytest.mark.parametrize(
    ("options", "different"),
    [
        (("--runs", 4, "--seed", 2), "seed"),
        (("--runs", 5), "n_runs"),
        (("--runs", 4, "--move", "smaller"), "move"),
        (("--runs", 5, "--move", "smaller"), "move, n_runs"),
    ],
)
def test_runs_of_other_options_are_refused_naming_the_difference(
    here: Here, interrupted: Path, starts: list[int], options: tuple[object, ...], different: str
) -> None:
    partial = interrupted / "fig3.partial.h5"
    before = partial.read_bytes()
    done = here("fig3", *options, "--folder", interrupted)
    assert done.returncode == 2
    assert f"{partial} is left from a run with other options ({different})" in done.stderr
    assert done.stderr.count("\n") == 1
    assert starts == []
    assert [path.name for path in interrupted.iterdir()] == [partial.name]
    assert partial.read_bytes() == before


def test_several_ranks_refuse_them_together(mpirun: Mpirun, interrupted: Path) -> None:
    done = mpirun(2, "reproduce", "fig3", "--runs", 5, "--folder", interrupted)
    assert done.returncode == 2
    assert "with other options (n_runs)" in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("mpi-ustat: ")]) == 1


def test_what_is_no_file_of_ours_is_not_taken_for_runs(here: Here, starts: list[int], tmp_path: Path) -> None:
    partial = tmp_path / "fig3.partial.h5"
    partial.write_text("not HDF5")
    done = here("fig3", *OPTIONS, "--folder", tmp_path)
    assert done.returncode == 2
    assert str(partial) in done.stderr
    assert starts == []
    assert partial.read_text() == "not HDF5"


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


def test_existing_outputs_are_refused_before_anything_is_simulated(
    here: Here, reference: Path, starts: list[int], tmp_path: Path
) -> None:
    targets = [tmp_path / f"fig3{suffix}" for suffix in SUFFIXES]
    for target in targets:
        target.write_bytes(b"precious")
        done = here("fig3", *OPTIONS, "--folder", tmp_path)
        assert done.returncode == 2
        assert str(target) in done.stderr and "--overwrite" in done.stderr
        assert starts == []
        assert target.read_bytes() == b"precious"
        assert [path.name for path in tmp_path.iterdir()] == [target.name]
        target.unlink()

    for target in targets:
        target.write_bytes(b"precious")
    done = here("fig3", *OPTIONS, "--folder", tmp_path, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert starts == [0] * 12
    assert_drawn(tmp_path, "fig3")
    assert_same_results(load(tmp_path / "fig3.h5"), load(reference / "fig3.h5"))


@pytest.mark.parametrize("n_runs", [1, 0, -3])
def test_a_number_of_runs_without_a_variance_is_refused(
    here: Here, starts: list[int], tmp_path: Path, n_runs: int
) -> None:
    done = here("fig3", "--runs", n_runs, "--folder", tmp_path)
    assert done.returncode == 2
    assert f"the number of runs is {n_runs}: give at least 2" in done.stderr
    assert starts == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("fig7",), ("fig3", "--spread", "threads"), ("fig3", "--move", "none"), ()])
def test_unknown_words_are_refused(here: Here, starts: list[int], tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = here(*arguments, "--folder", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("mpi-ustat: ")
    assert starts == []
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------------------------
# What is simulated


def simulations(name: str, **options: Any) -> dict[str, SimulationConfig]:
    found = {}
    for label, study in make_experiment(name, **options).studies.items():
        assert isinstance(study, Simulation)
        found[label] = study.config
    return found


def test_experiments_have_the_sizes_of_the_paper() -> None:
    fig3 = simulations("fig3")
    assert EPSILONS == (0.00016, 0.0008, 0.004, 0.02, 0.1, 0.5)
    for kind, conditional in (("plain", False), ("conditional", True)):
        for i, epsilon in enumerate(EPSILONS):
            each = fig3[f"{kind} {i}"]
            assert (each.model, each.epsilon, each.conditional) == ("two-point-auc", epsilon, conditional)
            assert (each.n, each.m, each.n_workers, each.n_rounds, each.n_runs) == (5000, 50, 10, 4, 5000)
            assert (each.scheme, each.move, each.local, each.pairs) == ("prop-swor", "both", True, ())
    assert len({each.seed for each in fig3.values()}) == len(fig3) == 12
    fig5 = simulations("fig5")
    assert list(fig5) == ["small", "large"]
    for panel, each in fig5.items():
        assert each.model == "normal-product"
        assert {"mean_x": each.mean_x, "mean_z": each.mean_z} == PANELS[panel]
        assert (each.n, each.m, each.n_workers, each.n_runs) == (N, M, N_WORKERS, 500)
        assert (each.scheme, each.empty, each.aggregate) == ("swor", "zero", "mean")
    assert fig5["small"].seed != fig5["large"].seed
    for name, tenth in (("fig3", 500), ("fig5", 50)):
        assert {each.n_runs for each in simulations(name, quick=True).values()} == {tenth}
        assert {each.n_runs for each in simulations(name, n_runs=7).values()} == {7}
    for name in ("fig1", "fig2", "fig6"):
        assert simulations(name) == {}


# ---------------------------------------------------------------------------------------------------------------------
# Figure 1


def test_the_pairs_of_figure_1_are_those_that_the_estimators_evaluate(reference: Path) -> None:
    result = load(reference / "fig1.h5")
    workers, sampled = result.datasets["worker"].values, result.datasets["sampled"].values
    n_rounds, n, m = workers.shape
    assert (n_rounds, n, m) == (3, 12, 8)
    rng = np.random.default_rng(1)
    x, z = rng.standard_normal(n), rng.standard_normal(m)
    h = np.outer(x, z)
    options: dict[str, Any] = {"n_workers": 4, "n_rounds": n_rounds, "shuffle": "permutation", "seed": 1}
    local = estimate(SerialComm(), x, z, "product", **options)
    incomplete = estimate(SerialComm(), x, z, "product", n_pairs=3, **options)
    for t in range(n_rounds):
        assert np.count_nonzero(workers[t] < 0) == 96 - 4 * 3 * 2
        for i in range(4):
            block = workers[t] == i
            # Three whole rows by two whole columns.
            assert np.count_nonzero(block.any(axis=1)) == 3 and np.count_nonzero(block.any(axis=0)) == 2
            assert np.count_nonzero(block) == 6
            assert h[block].mean() == pytest.approx(local.per_worker[t, i], rel=1e-12)
    for i in range(4):
        block = workers[0] == i
        assert sampled[block].sum() == 3
        assert (h * sampled)[block].sum() / 3 == pytest.approx(incomplete.per_worker[0, i], rel=1e-12)
    assert sampled.sum() == 12


# ---------------------------------------------------------------------------------------------------------------------
# Figures 2 and 6


def assert_curve(result: ResultFile, label: str, n_pairs: Floats, variances: Floats) -> None:
    found_pairs, found = values_of(result, label, "n_pairs", "variance")
    np.testing.assert_allclose(found_pairs, n_pairs, rtol=1e-12)
    np.testing.assert_allclose(found, variances, rtol=1e-10)


def rounds_of(result: ResultFile, label: str, pairs_per_round: float) -> Floats:
    """Return T along a curve; it goes from 1 to N."""
    n_rounds = result.datasets[f"{label}/n_pairs"].values / pairs_per_round
    assert n_rounds[0] == 1 and n_rounds[-1] == N_WORKERS
    assert np.all(np.diff(n_rounds) >= 1) and np.array_equal(n_rounds, np.round(n_rounds))
    return n_rounds


@pytest.mark.parametrize("panel", ["small", "large"])
def test_figure_2_holds_the_theorems_of_prop_swor(reference: Path, panel: str) -> None:
    result = load(reference / "fig2.h5")
    assert (result.config["n"], result.config["m"], result.config["n_workers"]) == (N, M, N_WORKERS)
    var_x, var_z, var_xz = PANELS[panel]["mean_z"] ** 2, PANELS[panel]["mean_x"] ** 2, 1.0
    complete = var_x / N + var_z / M + var_xz / (N * M)
    assert_curve(result, f"{panel}/complete", np.array([N * M]), np.array([complete]))

    T = rounds_of(result, f"{panel}/local", N * M / N_WORKERS)
    theorem_2 = complete + (N_WORKERS - 1) * var_xz / (N * M * T)
    assert_curve(result, f"{panel}/local", T * N * M / N_WORKERS, theorem_2)

    total = var_x + var_z + var_xz
    one_round = complete + (N_WORKERS - 1) * var_xz / (N * M)
    for B in (10, 100):
        assert np.array_equal(rounds_of(result, f"{panel}/incomplete {B}", N_WORKERS * B), T)
        variances = theorem_2 + total / (N_WORKERS * T * B) - one_round / (T * B)
        assert_curve(result, f"{panel}/incomplete {B}", T * N_WORKERS * B, variances)

    (b,) = values_of(result, f"{panel}/sampled", "n_pairs")
    assert b[0] == 1000 and b[-1] == N * M
    assert_curve(result, f"{panel}/sampled", b, (1.0 - 1.0 / b) * complete + total / b)


@pytest.mark.parametrize("panel", ["small", "large"])
def test_figure_6_holds_the_theorems_of_prop_swr_corrected_and_printed(reference: Path, panel: str) -> None:
    result = load(reference / "fig6.h5")
    var_x, var_z, var_xz = PANELS[panel]["mean_z"] ** 2, PANELS[panel]["mean_x"] ** 2, 1.0
    complete, total = var_x / N + var_z / M + var_xz / (N * M), var_x + var_z + var_xz

    def block(n: float, m: float, n_workers: int) -> float:
        a, b = ((1.0 + n_workers * (1.0 - 1.0 / size)) / size for size in (n, m))
        return var_x * a + var_z * b + var_xz * a * b

    T = rounds_of(result, f"{panel}/local", N * M / N_WORKERS)
    theorem = complete + (block(N, M, N_WORKERS) - complete) / (N_WORKERS * T)
    assert_curve(result, f"{panel}/local", T * N * M / N_WORKERS, theorem)
    for B in (10, 100):
        for name, local in (
            ("incomplete", block(N, M, N_WORKERS)),
            ("printed", block(N / N_WORKERS, M / N_WORKERS, 1)),
        ):
            assert np.array_equal(rounds_of(result, f"{panel}/{name} {B}", N_WORKERS * B), T)
            variances = theorem + (total - local) / (N_WORKERS * B * T)
            assert_curve(result, f"{panel}/{name} {B}", T * N_WORKERS * B, variances)
        corrected, printed = (
            result.datasets[f"{panel}/{name} {B}/variance"].values for name in ("incomplete", "printed")
        )
        assert np.all(printed < corrected)


# ---------------------------------------------------------------------------------------------------------------------
# Figures 3 and 5: the summaries of the runs


@pytest.mark.parametrize("kind", ["plain", "conditional"])
def test_figure_3_sums_up_its_runs(reference: Path, kind: str) -> None:
    result = load(reference / "fig3.h5")
    np.testing.assert_array_equal(result.scales["epsilon"], EPSILONS)
    complete, local = values_of(result, f"{kind}/runs", "complete", "local")
    assert complete.shape == (6, N_RUNS) and local.shape == (6, N_RUNS, 4)
    columns = {"complete": complete, "local": local[:, :, 0], "repartitioned": local.mean(axis=2)}
    for i, epsilon in enumerate(EPSILONS):
        exact = theory.variance_complete(two_point_auc(epsilon)[1], 5000, 50)
        chance = two_point_auc_informative(epsilon, 5000, 50) if kind == "conditional" else 1.0
        assert result.datasets[f"{kind}/probability"].values[i] == chance
        for name, column in columns.items():
            variance, error = _variance(1.0 - column[i], chance)
            relative, relative_error = values_of(result, f"{kind}/{name}", "relative_variance", "standard_error")
            assert relative[i] == pytest.approx(variance / exact, rel=1e-12)
            assert relative_error[i] == pytest.approx(error / exact, rel=1e-12)
    if kind == "plain":
        informative = [sum(value < 1.0 for value in of_epsilon) for of_epsilon in complete.tolist()]
        assert result.datasets["plain/complete/informative"].values.tolist() == informative
        assert 0 < sum(informative) < 6 * N_RUNS
    else:
        assert np.all(complete < 1.0)


def test_figure_3_has_the_exact_ratios(reference: Path) -> None:
    result = load(reference / "fig3.h5")
    exact = {
        "local": [5.978, 2.785, 1.423, 1.086, 1.016, 1.002],
        "repartitioned": [2.244, 1.446, 1.106, 1.022, 1.004, 1.000],
    }
    (grid,) = values_of(result, "curve", "epsilon")
    assert grid[0] == pytest.approx(EPSILONS[0]) and grid[-1] == pytest.approx(EPSILONS[-1])
    assert np.all(np.diff(grid) > 0)
    for name, ratios in exact.items():
        np.testing.assert_allclose(result.datasets[f"exact/{name}"].values, ratios, atol=5.1e-4)
        curve = [
            two_point_auc_relative_variance(epsilon, 5000, 50, 10, 1 if name == "local" else 4)
            for epsilon in grid.tolist()
        ]
        np.testing.assert_array_equal(result.datasets[f"curve/{name}"].values, curve)


@pytest.mark.parametrize("panel", ["small", "large"])
def test_figure_5_sums_up_its_runs_beside_the_theory_of_swor(reference: Path, panel: str) -> None:
    result = load(reference / "fig5.h5")
    config = simulations("fig5", quick=True)[panel]
    complete, local, incomplete, sampled = values_of(
        result, f"{panel}/runs", "complete", "local", "incomplete", "sampled"
    )
    T = config.n_rounds
    assert (complete.shape, local.shape) == ((N_RUNS,), (N_RUNS, T))
    assert (incomplete.shape, sampled.shape) == ((N_RUNS, 2, T), (N_RUNS, len(config.total_pairs)))
    series: dict[str, list[tuple[float, Floats]]] = {
        "complete": [(N * M, complete)],
        "local": [(t * N * M / N_WORKERS, local[:, :t].mean(axis=1)) for t in range(1, T + 1)],
        "sampled": [(b, sampled[:, j]) for j, b in enumerate(config.total_pairs)],
    }
    for j, B in enumerate((10, 100)):
        series[f"incomplete {B}"] = [(t * B * N_WORKERS, incomplete[:, j, :t].mean(axis=1)) for t in range(1, T + 1)]
    for label, points in series.items():
        parts = ("n_pairs", "variance", "standard_error", "mean")
        by_pairs = dict(points)
        found = values_of(result, f"{panel}/{label}/measured", *parts)
        assert len(found[0]) >= min(len(points), 4)
        assert (found[0][0], found[0][-1]) == (points[0][0], points[-1][0])
        for n_pairs, variance, error, mean in zip(*found, strict=True):
            column = by_pairs[n_pairs]
            assert variance == pytest.approx(column.var(ddof=1), rel=1e-12)
            assert error == pytest.approx(_variance(column, 1.0)[1], rel=1e-12)
            assert mean == pytest.approx(column.mean(), rel=1e-14)

    expectation, components = normal_product(**PANELS[panel])
    factor = swor_bias_factor(N, M, N_WORKERS)
    assert factor == pytest.approx(0.866, abs=5e-4)
    assert result.datasets[f"{panel}/expectation"].values == expectation
    assert result.datasets[f"{panel}/swor_expectation"].values == pytest.approx(factor * expectation)
    options: dict[str, Any] = {"n": N, "m": M, "n_workers": N_WORKERS, "expectation": expectation}
    for label, n_pairs, per_round in (("local", None, N * M / N_WORKERS), ("incomplete 10", 10, 1000)):
        n_rounds = rounds_of(result, f"{panel}/{label}", per_round)
        for place in (0, 7, -1):
            formula = paper_variances.variance_swor(
                components, n_rounds=int(n_rounds[place]), n_pairs=n_pairs, **options
            )
            assert result.datasets[f"{panel}/{label}/variance"].values[place] == pytest.approx(formula, rel=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# The variance of a variable that is 0 but for an event


@pytest.mark.parametrize("n_runs", [2, 3, 50])
def test_the_variance_of_plain_runs_is_the_unbiased_one(n_runs: int) -> None:
    values = np.random.default_rng(n_runs).gamma(2.0, size=n_runs)
    variance, error = _variance(values, 1.0)
    assert variance == pytest.approx(values.var(ddof=1), rel=1e-12)
    fourth = sum((each - values.mean()) ** 4 for each in values) / n_runs
    squared = (fourth - variance**2 * (n_runs - 3) / (n_runs - 1)) / n_runs
    assert error == pytest.approx(math.sqrt(squared), rel=1e-12)


@pytest.mark.parametrize("chance", [0.9, 0.25, 1e-6])
def test_the_variance_from_draws_given_an_event_is_that_of_the_mixture(chance: float) -> None:
    """The mixture: each of the R draws with probability P/R, and 0 with probability 1 - P."""
    values = np.random.default_rng(3).gamma(2.0, size=40)
    support, weights = np.append(values, 0.0), np.append(np.full(40, chance / 40), 1.0 - chance)
    mean = np.average(support, weights=weights)
    mixture = np.average((support - mean) ** 2, weights=weights)
    assert _variance(values, chance)[0] == pytest.approx(mixture, rel=1e-9)


@pytest.mark.parametrize("chance", [1.0, 0.7, 0.01])
def test_standard_errors_of_variances_are_what_repetitions_show(chance: float) -> None:
    """4000 repetitions of 300 draws, uniform on [0, 2] given the event: E D = 1, E D² = 4/3.

    Their spread has a relative error of 1.1 % (1/√8000, near-normal estimates), the mean of the variances one of its
    standard errors; either may differ from what is claimed by 4 of these, and so does with probability 6·10⁻⁵ each.
    """
    rng = np.random.default_rng(5)
    found = np.array([_variance(rng.uniform(0.0, 2.0, 300), chance) for _ in range(4000)])
    variances, errors = found.T
    spread = variances.std(ddof=1)
    truth = 4.0 / 3.0 * chance - chance**2
    assert abs(variances.mean() - truth) < 4.0 * spread / math.sqrt(4000) + chance**2 / 3.0 / 300
    assert math.sqrt((errors**2).mean()) == pytest.approx(spread, rel=0.045)


def test_what_was_killed_before_its_picture_is_drawn_when_started_again(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("fig2", "--quiet", "--folder", tmp_path)
    assert here(*arguments).returncode == 0
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(reproduce_command, "_simulated", None)
    for missing in (["fig2.png"], ["fig2.pdf"], ["fig2.png", "fig2.pdf"]):
        for name in missing:
            (tmp_path / name).unlink()
        (tmp_path / "fig2.partial.h5").touch()
        done = here(*arguments)
        assert done.returncode == 0, done.stderr
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == whole
        assert "exists" in refusal(here(*arguments))  # it is whole
    (tmp_path / "fig2.png").unlink()
    with h5py.File(tmp_path / "fig2.h5", "r+") as file:
        file.attrs["kind"] = "fig6"
    assert "exists" in refusal(here(*arguments))  # it is another's
