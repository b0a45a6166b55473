"""`estimate --test`: what the library finds, printed, written, drawn; and what goes with it, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from commands import refusal, result_of, write_csv
from conftest import Mpirun

import mpi_ustat
from mpi_ustat.api.tables import test_rows as rows_of_test
from mpi_ustat.plots.pictures import draw
from mpi_ustat.storage.results import load

Here = Callable[..., CompletedProcess[str]]

RNG = np.random.default_rng(8)
ALONE = mpi_ustat.SerialComm()
LABELS = RNG.permutation(np.arange(130) % 2)
POINTS = np.round(RNG.normal(size=(130, 2)) + 0.3 * LABELS[:, None], 3)
X, Z = POINTS[LABELS == 1], POINTS[LABELS == 0]
COMMON = ("--label", "y", "--columns", "a,b", "--kernel", "energy", "--test", "--seed", "3")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [(*point, label) for point, label in zip(POINTS.tolist(), LABELS.tolist(), strict=True)]
    return write_csv(tmp_path / "rows.csv", rows, "a,b,y")


@pytest.mark.parametrize("n_ranks", [0, 3])
def test_the_command_finds_what_the_library_finds(mpirun: Mpirun, data: Path, n_ranks: int) -> None:
    options = ("--permutations", 499, "--workers", 40)
    found = result_of(mpirun(n_ranks, "estimate", data, *COMMON, *options, "--json"))
    want = mpi_ustat.test(mpi_ustat.SerialComm(), X, Z, "energy", n_permutations=499, n_workers=40, seed=3)
    assert (found["estimate"], found["p"], found["n_permutations"]) == (want.value, want.p, 499)
    assert (found["n_blocks"], found["block_size"], found["exact"]) == ([21, 21], 3, False)
    assert found["quantiles"] == {f"{level:g}": each for level, each in want.quantiles.items()}
    assert found["positive"] == "1"


def test_options_of_the_kernel_and_files_of_samples(here: Here, tmp_path: Path) -> None:
    for name, points in (("x", X), ("z", Z)):
        write_csv(tmp_path / f"{name}.csv", points.tolist(), "a,b")
    files = ("--x", tmp_path / "x.csv", "--z", tmp_path / "z.csv", "--columns", "a,b")
    options = ("--kernel", "mmd", "--bandwidth", "1.5", "--test", "--seed", "3", "--complete", "--json")
    found = result_of(here("estimate", *files, *options))
    given = {"kernel_options": {"bandwidth": 1.5}, "seed": 3}
    want = mpi_ustat.test(mpi_ustat.SerialComm(), X, Z, "mmd", **given)
    assert (found["estimate"], found["p"], found["n_permutations"]) == (want.value, want.p, 9999)


def test_what_is_learnt_of_the_points_is_told(here: Here, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "test.h5"
    options = ("--bandwidth", "median", "--standardize", "iqr", "--output", path)
    done = here("estimate", data, *COMMON, "--kernel", "mmd", *options)
    given = {"kernel_options": {"bandwidth": "median", "standardize": "iqr"}, "seed": 3}
    want = mpi_ustat.test(mpi_ustat.SerialComm(), X, Z, "mmd", **given)
    assert f"bandwidth         {want.learnt['bandwidth']!r}, the median" in done.stdout
    file = load(path)
    assert float(file.datasets["estimate"].values) == want.value
    assert file.datasets["learnt/scales"].values.tolist() == want.learnt["scales"]
    whole = mpi_ustat.estimate(mpi_ustat.SerialComm(), X, Z, "mmd", complete=True, stderr=False, **given)
    assert want.value == pytest.approx(whole.value, rel=1e-12) and want.learnt == whole.learnt


def test_the_table_and_the_file(here: Here, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "test.h5"
    done = here("estimate", data, *COMMON, "--output", path)
    want = mpi_ustat.test(mpi_ustat.SerialComm(), X, Z, "energy", seed=3)
    assert done.returncode == 0, done.stderr
    assert f"estimate          {want.value!r}\ntest              that both samples are of one law: p" in done.stdout
    assert "random 9999, of 65 and 65 blocks of 1 point\n" in done.stdout
    file = load(path)
    assert file.kind == "test"
    assert float(file.datasets["test/p"].values) == want.p
    assert np.array_equal(file.datasets["test/relabelled"].values, want.relabelled)
    assert file.provenance["n_workers"] == 130 and file.provenance["seed"] == 3
    told = here("info", path).stdout
    assert "test that both samples are of one law\n" in told and "random 9999" in told
    assert here("plot", path, "--output", tmp_path / "test.png").returncode == 0
    assert here("estimate", data, *COMMON, "--quiet").stdout == f"{want.value!r}\n{want.p!r}\n"


def test_a_list_of_bandwidths(here: Here, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "test.h5"
    common = ("--label", "y", "--columns", "a,b", "--kernel", "mmd", "--seed", "3", "--bandwidth", "0.5, 1,median")
    done = here("estimate", data, *common, "--test", "--output", path)
    options = {"bandwidth": [0.5, 1.0, "median"]}
    want = mpi_ustat.test(mpi_ustat.SerialComm(), X, Z, "mmd", kernel_options=options, seed=3)
    assert done.returncode == 0, done.stderr
    assert want.several is not None
    assert f"estimate          {want.value!r}, the largest studentised\n" in done.stdout
    assert f"bandwidths        0.5: {want.several.estimates[0]:.6g}, studentised" in done.stdout
    file = load(path)
    assert file.config["kernel_options"] == options
    assert file.scales["bandwidth"].tolist() == list(want.several.used)
    for name in ("estimates", "studentised", "means", "deviations", "largest"):
        values = file.datasets[f"test/several/{name if name == 'largest' else name.removesuffix('s')}"].values
        assert np.array_equal(values, getattr(want.several, name))
    median = want.several.used[2]
    assert f"bandwidth {median:.6g}" in here("info", path).stdout
    pytest.importorskip("matplotlib")
    assert "mmd largest studentised U-statistic" in draw(file).axes[0].get_xlabel()
    told = refusal(here("estimate", data, *common, "--complete"))
    assert told == "a list of values of the bandwidth is for a test: give one"


def test_by_rounds(here: Here, data: Path, tmp_path: Path) -> None:
    path, options = tmp_path / "test.h5", ("--rounds", "4", "--workers", "32", "--permutations", "199")
    done = here("estimate", data, *COMMON, *options, "--scheme", "rotation", "--output", path)
    want = mpi_ustat.test(ALONE, X, Z, n_rounds=4, n_workers=32, n_permutations=199, seed=3)
    assert done.returncode == 0, done.stderr
    assert f"rounds            4: {want.n_pairs} pairs of points (" in done.stdout
    file = load(path)
    assert (float(file.datasets["estimate"].values), float(file.datasets["test/p"].values)) == (want.value, want.p)
    assert int(file.datasets["test/n_pairs"].values) == want.n_pairs and file.provenance["n_workers"] == 32
    assert (file.config["n_rounds"], file.config["n_workers"]) == (4, 32)
    assert f"4: {want.n_pairs} pairs of points, of those of 32 workers that met\n" in here("info", path).stdout
    found = result_of(here("estimate", data, *COMMON, *options, "--json"))
    assert (found["estimate"], found["n_rounds"], found["n_workers"]) == (want.value, 4, 32)


@pytest.fixture
def of_three(tmp_path: Path) -> tuple[Path, dict[str, list[list[float]]]]:
    names = RNG.permutation(["low", "mid", "high"] * 25).tolist()
    points = np.round(RNG.normal(size=(75, 2)) + 0.4 * (np.array(names) == "high")[:, None], 3).tolist()
    rows = [(*point, name) for point, name in zip(points, names, strict=True)]
    samples = {name: [p for p, each in zip(points, names, strict=True) if each == name] for name in names}
    return write_csv(tmp_path / "three.csv", rows, "a,b,y"), samples


@pytest.mark.parametrize(
    ("options", "order"),
    [((), ("high", "low", "mid")), (("--classes", "low,mid,high"), ("low", "mid", "high"))],
)
def test_a_label_of_several_values(
    here: Here, of_three: tuple[Path, dict[str, list[list[float]]]], options: tuple[str, ...], order: tuple[str, ...]
) -> None:
    path, samples = of_three
    common = ("--label", "y", "--kernel", "energy", "--test", "--seed", "3", "--permutations", "199")
    file = path.with_suffix(".h5")
    done = here("estimate", path, *common, *options, "--output", file)
    want = mpi_ustat.test_samples(ALONE, [np.array(samples[name]) for name in order], n_permutations=199, seed=3)
    assert done.returncode == 0, done.stderr
    assert f"estimate          {want.value!r}, of 3 samples\ntest              that all samples are of" in done.stdout
    first = want.pairs[0]
    assert f"\npairs             '{order[0]}', '{order[1]}': {first.value:.6g}, p = {first.p:.3g}, Holm" in done.stdout
    found = result_of(here("estimate", path, *common, *options, "--json"))
    assert found["classes"] == list(order) and found["p"] == want.p and found["positive"] is None
    assert found["pairs"][2]["p_holm"] == want.pairs[2].p_holm
    assert [each["statistic"] for each in found["pairs"]] == [", ".join(two) for two in combinations(order, 2)]
    assert [row["statistic"] for row in rows_of_test(load(file))[1:]] == [each["statistic"] for each in found["pairs"]]
    loaded = load(file)
    for name in ("first", "second", "value", "p", "p_holm", "n_permutations"):
        values = loaded.datasets[f"test/pairs/{name}"].values
        assert values.tolist() == [getattr(pair, name) for pair in want.pairs]
    told = here("info", file).stdout
    assert "test that all samples are of one law\n" in told and f"{order[0]} and {order[1]}" in told
    pytest.importorskip("matplotlib")
    (axes,) = draw(loaded).axes
    assert axes.get_title(loc="left").startswith(f"energy: are all 3 samples of one law? p = {want.p:.3g}")
    assert axes.patches[0].get_data().values.sum() == 199


def test_of_several_values_some_can_be_chosen(here: Here, of_three: tuple[Path, dict[str, list[list[float]]]]) -> None:
    path, samples = of_three
    common = ("--label", "y", "--kernel", "energy", "--seed", "3")
    test = ("--test", "--permutations", "199", "--json")
    found = result_of(here("estimate", path, *common, *test, "--classes", "low,high"))
    high, low = (np.array(samples[name]) for name in ("high", "low"))
    assert found["p"] == mpi_ustat.test(ALONE, high, low, n_permutations=199, seed=3).p
    rest = result_of(here("estimate", path, *common, *test, "--positive", "high", "--rest"))
    assert rest["sizes"] == [25, 50]
    told = refusal(here("estimate", path, *common, *test, "--positive", "high"))
    assert "has more than two values ('high', 'low', 'mid')" in told
    told = refusal(here("estimate", path, *common, *test, "--rounds", "2"))
    assert told == "--rounds is of a test of two samples, not of 3: leave it out"
    assert "has more than two values" in refusal(here("estimate", path, *common, "--complete"))


def test_of_very_many_relabellings_there_is_a_histogram(here: Here, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "test.h5"
    options = ("--workers", "20", "--permutations", "100001", "--output", path, "--json")
    found = json.loads(here("estimate", data, *COMMON, *options).stdout)
    file = load(path)
    assert "test/relabelled" not in file.datasets
    counts, edges = (file.datasets[f"test/{name}"].values for name in ("count", "edge"))
    assert counts.sum() == found["n_permutations"] == 100_001
    above = counts[edges[:-1] > found["estimate"]].sum(), counts[edges[1:] >= found["estimate"]].sum()
    assert above[0] <= found["p"] * 100_002 - 1 <= above[1]
    pytest.importorskip("matplotlib")
    (axes,) = draw(file).axes
    drawn = axes.patches[0].get_data()
    assert drawn.values.sum() == 100_001
    assert (drawn.edges[0], drawn.edges[-1]) == (edges[0], edges[-1])


def test_the_picture_shows_the_value_and_the_others(here: Here, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "test.h5"
    here("estimate", data, *COMMON, "--permutations", "999", "--output", path)
    file = load(path)
    (axes,) = draw(file).axes
    assert axes.patches[0].get_data().values.sum() == 999
    lines = {line.get_xdata()[0] for line in axes.get_lines()}
    assert lines == {float(file.datasets["estimate"].values), float(file.datasets["test/quantile"].values[2])}
    assert f"p = {float(file.datasets['test/p'].values):.3g}" in axes.get_title(loc="left")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--pairs", "3"), "--test takes all pairs that meet, of blocks that it deals out itself: leave out --pairs"),
        (("--scheme", "rotation"), "or with --rounds those that meet in a rotation: leave out --scheme"),
        (("--scheme", "swor", "--rounds", "2"), "leave out --scheme"),
        (
            ("--rounds", "40"),
            "33 workers can meet in 1 to 16 rounds, not 40: use other rounds (--rounds), more workers",
        ),
        (("--bias-report",), "leave out --bias-report"),
        (("--checkpoint", "f", "--checkpoint-every", "1"), "leave out --checkpoint"),
        (("--reference",), "leave out --reference"),
        (("--null", "0"), "--test has a p-value and neither error bar nor interval: leave out --null"),
        (("--confidence", "0.9"), "leave out --confidence"),
        (("--weights", "a"), "--test exchanges points that are alike but for their sample: leave out --weights"),
        (("--group", "a"), "leave out --group"),
        (("--influence",), "leave out --influence"),
        (("--permutations", "18"), "the number of permutations is 18: give from 19"),
        (("--permutations", "99.5"), "--permutations is '99.5': give a whole number"),
        (("--workers", "131"), "131 blocks can't each have one of 130 points: use at most 130 workers (--workers)"),
        (("--workers", "4"), "in 6 ways only, and p is 0.17 at least: use more blocks (--workers)"),
        (("--kernel", "auc"), "the kernel auc is no discrepancy"),
        (("--kernel", "auc", "--multiclass", "ovr"), "--multiclass of the AUC: leave out one"),
        (("--bandwidth", "2"), "the kernel energy has no option bandwidth"),
    ],
)
def test_what_does_not_go_with_a_test_is_refused(here: Here, data: Path, options: tuple[str, ...], text: str) -> None:
    assert text in refusal(here("estimate", data, *COMMON, *options))


def test_permutations_need_a_test(here: Here, data: Path) -> None:
    words = [word for word in COMMON if word != "--test"]
    told = refusal(here("estimate", data, *words, "--permutations", "99"))
    assert told == "--permutations is how often a test relabels the samples: give --test too"
