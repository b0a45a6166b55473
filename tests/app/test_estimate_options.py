"""`mpi-ustat estimate`: every kernel and option from files to numbers, what is printed and written, what is refused."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from conftest import Mpirun
from scipy.special import stdtrit

from mpi_ustat.app.options_as_flags import in_flags
from mpi_ustat.estimation import by_default
from mpi_ustat.estimation.estimate import estimate_samples
from mpi_ustat.mpi.runtime import SerialComm, telling
from mpi_ustat.storage.results import load

SERIAL = SerialComm()
COMMAND = ("estimate",)
COLUMNS = ("a", "b", "c")

Here = Callable[..., CompletedProcess[str]]


def table() -> dict[str, np.ndarray]:
    """Return 101 rows: three columns of numbers with ties, three classes in `y`, as texts in `word`, two in `two`."""
    rng = np.random.Generator(np.random.Philox(5))
    n = 101
    y = rng.integers(0, 3, size=n)
    columns = {
        name: np.round(rng.normal(size=n) + shift * y, 2) for name, shift in zip("abc", (1, 0.5, 0), strict=True)
    }
    return {**columns, "y": y, "two": (y > 0).astype(int), "word": np.array(["low", "mid", "high"])[y]}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made the current one, with the table in d.csv and modules of kernels."""
    columns = table()
    lines = [",".join(map(str, row)) for row in zip(*(column.tolist() for column in columns.values()), strict=True)]
    (tmp_path / "d.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(*columns: str, where: Any = slice(None)) -> np.ndarray:
    """Return some columns of some rows of the table."""
    found = [table()[column][where] for column in columns]
    return found[0] if len(found) == 1 else np.column_stack(found)


def classes(*columns: str, of: str = "two", order: Sequence[Any] = (1, 0)) -> tuple[np.ndarray, ...]:
    """Return a sample for each label of a column."""
    return tuple(rows(*columns, where=table()[of] == label) for label in order)


def result_of(done: CompletedProcess[str]) -> dict[str, Any]:
    """Return the one JSON object on stdout; NaN and infinities are no JSON."""
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    return parsed(done.stdout)


def parsed(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    found: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return found


def refusal(done: CompletedProcess[str]) -> str:
    """Return the one sentence on stderr of a run that exited with 2."""
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mpi-ustat: ")
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n")
    return done.stderr.removeprefix("mpi-ustat: ")


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# ---------------------------------------------------------------------------------------------------------------------
# Each kernel, over all pairs, against its definition


def pairs_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    i, j = np.triu_indices(len(x), 1)
    return x[i], x[j]


def kendall(tau: str) -> float:
    first, second = pairs_of(rows("a", "b"))
    signs = np.sign(first - second)
    untied = np.count_nonzero(signs, axis=0)
    return float(signs.prod(axis=1).sum()) / (len(signs) if tau == "a" else math.sqrt(untied[0] * untied[1]))


def vus(share_ties: bool) -> float:
    x, y, z = (each[:, None, None] for each in classes("a", of="y", order=(0, 1, 2)))
    y, z = y.reshape(1, -1, 1), z.reshape(1, 1, -1)
    h = ((x < y) & (y < z)).astype(float)
    if share_ties:
        h += 0.5 * ((x == y) & (y < z)) + 0.5 * ((x < y) & (y == z)) + ((x == y) & (y == z)) / 6
    return float(h.mean())


def discrepancy(k: Callable[[np.ndarray, np.ndarray], np.ndarray], *columns: str) -> float:
    """Return the mean of k within x, plus that within z, minus twice that across."""
    x, z = (each.reshape(len(each), -1) for each in classes(*columns))
    within = [float(k(*pairs_of(each)).mean()) for each in (x, z)]
    return sum(within) - 2.0 * float(k(np.repeat(x, len(z), axis=0), np.tile(z, (len(x), 1))).mean())


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray(np.einsum("ij,ij->i", first, second) / lengths)


def all_pairs(*columns: str) -> tuple[np.ndarray, np.ndarray]:
    x, z = classes(*columns)
    return np.repeat(x, len(z), axis=0), np.tile(z, (len(x),) + (1,) * (z.ndim - 1))


def distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.linalg.norm(first - second, axis=1)


def gaussian(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * np.sum((first - second) ** 2, axis=1) / 1.5**2)


def auc(x: np.ndarray, z: np.ndarray, ties: float = 0.5) -> float:
    return float(np.mean((x[:, None] > z) + ties * (x[:, None] == z)))


ONE, TWO = ["--columns", "a"], ["--columns", "a", "--label", "two"]
PAIR = ["--columns", "a,b"]
Expected = Callable[[], float | np.ndarray]

COMPLETE: dict[str, tuple[list[str], Expected, tuple[str, ...]]] = {
    "auc": (TWO, lambda: auc(*classes("a")), ("ranges", "minority")),
    "auc, strict": ([*TWO, "--ties", "strict"], lambda: auc(*classes("a"), ties=0), ("ranges", "minority")),
    "auc of the others": ([*TWO, "--positive", "0"], lambda: 1 - auc(*classes("a")), ("ranges", "minority")),
    "product": ([*TWO, "--kernel", "product"], lambda: math.prod(s.mean() for s in classes("a")), ("sums",)),
    "gini of one": ([*ONE, "--kernel", "gini"], lambda: np.mean(np.abs(np.subtract(*pairs_of(rows("a"))))), ("gini",)),
    "gini of two": ([*TWO, "--kernel", "gini"], lambda: np.mean(np.abs(np.subtract(*all_pairs("a")))), ("ranges",)),
    "variance": ([*ONE, "--kernel", "variance"], lambda: rows("a").var(ddof=1), ("variance",)),
    "tau-a": ([*PAIR, "--kernel", "kendall", "--tau", "a"], lambda: kendall("a"), ("kendall",)),
    "tau-b": ([*PAIR, "--kernel", "kendall", "--tau", "b"], lambda: kendall("b"), ("kendall",)),
    "tau": ([*PAIR, "--kernel", "kendall"], lambda: kendall("b"), ("kendall",)),
    "vus": ([*ONE, "--kernel", "vus", "--label", "y"], lambda: vus(False), ("vus",)),
    "vus, shared": ([*ONE, "--kernel", "vus", "--label", "y", "--ties", "shared"], lambda: vus(True), ("vus",)),
    "vus of words": (
        [*ONE, "--kernel", "vus", "--label", "word", "--classes", "low,mid,high"],
        lambda: vus(False),
        ("vus",),
    ),
    "vus of two": (
        [*ONE, "--kernel", "vus", "--label", "y", "--classes", "0,2", "--ties", "shared"],
        lambda: auc(*classes("a", of="y", order=(2, 0))),
        ("vus",),
    ),
    "energy": ([*PAIR, "--label", "two", "--kernel", "energy"], lambda: -discrepancy(distance, "a", "b"), ("energy",)),
    "mmd": (
        [*PAIR, "--label", "two", "--kernel", "mmd", "--bandwidth", "1.5"],
        lambda: discrepancy(gaussian, "a", "b"),
        ("energy",),
    ),
    "mmd, linear": (
        [*PAIR, "--label", "two", "--kernel", "mmd", "--mmd-kernel", "linear"],
        lambda: discrepancy(lambda x, z: np.sum(x * z, axis=1), "a", "b"),
        ("energy",),
    ),
    "mmd, laplace": (
        [*PAIR, "--label", "two", "--kernel", "mmd", "--mmd-kernel", "laplace", "--bandwidth", "2"],
        lambda: discrepancy(lambda x, z: np.exp(-distance(x, z) / 2.0), "a", "b"),
        ("energy",),
    ),
    "energy, a power": (
        [*PAIR, "--label", "two", "--kernel", "energy", "--alpha", "1.5"],
        lambda: -discrepancy(lambda x, z: distance(x, z) ** 1.5, "a", "b"),
        ("energy",),
    ),
    "energy, columns in a range": (
        ["--columns", "a..c", "--label", "two", "--kernel", "energy"],
        lambda: -discrepancy(distance, "a", "b", "c"),
        ("energy",),
    ),
    "fmr of two": (
        [*PAIR, "--label", "two", "--kernel", "fmr", "--threshold", "0.25"],
        lambda: np.mean(cosines(*all_pairs("a", "b")) >= 0.25),
        ("ring",),
    ),
    "fmr of one": (
        ["--columns", "a,b,c", "--kernel", "fmr", "--threshold", "-0.25", "--metric", "inner"],
        lambda: np.mean(np.einsum("ij,ij->i", *pairs_of(rows("a", "b", "c"))) >= -0.25),
        ("ring",),
    ),
    "histogram": (
        ["--columns", "a,b,c", "--kernel", "similarity-histogram", "--edges", "-1,-0.25,0.5,1"],
        lambda: np.histogram(cosines(*pairs_of(rows("a", "b", "c"))), (-1, -0.25, 0.5, 1))[0] / math.comb(101, 2),
        ("ring",),
    ),
}
"""Options, value by definition, and routes that may be taken, of each statistic."""


@pytest.mark.parametrize("name", COMPLETE)
def test_all_pairs_give_the_statistic_of_the_definition(here: Here, data: Path, name: str) -> None:
    options, expected, routes = COMPLETE[name]
    way = ["--complete", "--workers", "3", "--seed", "1"]
    found = result_of(here("d.csv", *options, *way, "--json"))
    assert found["estimate"] == pytest.approx(expected(), rel=1e-12)
    assert found["complete_value"] == found["estimate"]
    assert found["complete_stderr"] == found["stderr"]
    assert found["complete_route"] in routes
    kernel = options[options.index("--kernel") + 1] if "--kernel" in options else "auc"
    sizes = [101] if "--label" not in options else [len(each) for each in classes("a")]
    if kernel == "vus":
        sizes = [len(each) for each in classes("a", of="y", order=(0, 1, 2))]
    if name == "auc of the others":
        sizes = sizes[::-1]
    if name == "vus of two":
        sizes = sizes[::2]
    assert (found["kernel"], found["sizes"]) == (kernel, sizes)
    assert (found["n"], found["m"]) == (sizes[0], sizes[1] if len(sizes) > 1 else None)
    pairs = {1: math.comb(101, 2), 2: math.prod(sizes), 3: math.prod(sizes)}[len(sizes)]
    if kernel in ("energy", "mmd"):
        pairs += sum(math.comb(size, 2) for size in sizes)
    assert found["n_pairs"] == pairs
    assert found["ties"] == (("strict" if "strict" in name else "half") if kernel == "auc" else found["ties"])
    value, error = np.atleast_1d(found["estimate"]), np.atleast_1d(found["stderr"]).astype(float)
    ends = np.atleast_2d(found["interval"])
    assert (error > 0.0).all()
    assert (ends[:, 0] < value).all() and (value < ends[:, 1]).all()
    printed = here("d.csv", *options, *way)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert f"all {pairs} (the complete statistic), by the route {found['complete_route']}\n" in printed.stdout
    for each in value.tolist():
        assert f"{each!r} ± " in printed.stdout


HOW = {
    "one round": (["--workers", "4"], {"n_workers": 4}),
    "three rounds": (["--workers", "4", "--rounds", "3"], {"n_workers": 4, "n_rounds": 3}),
    "pooled": (["--workers", "4", "--aggregate", "pooled"], {"n_workers": 4, "aggregate": "pooled"}),
    "sampled": (["--workers", "5", "--pairs", "30"], {"n_workers": 5, "n_pairs": 30}),
    "distinct": (["--workers", "5", "--pairs", "30", "--distinct"], {"n_workers": 5, "n_pairs": 30, "distinct": True}),
    "rotation": (
        ["--workers", "4", "--scheme", "rotation", "--rounds", "2"],
        {"n_workers": 4, "scheme": "rotation", "n_rounds": 2},
    ),
    "skipping": (
        ["--workers", "19", "--scheme", "swor", "--empty", "skip"],
        {"n_workers": 19, "scheme": "swor", "empty": "skip"},
    ),
    "as it is": (["--workers", "3", "--scheme", "as-is", "--reference"], {"n_workers": 3, "scheme": "as-is"}),
}

LIBRARY: dict[str, tuple[str, Callable[[], tuple[np.ndarray, ...]], dict[str, Any]]] = {
    "auc": ("auc", lambda: classes("a"), {}),
    "gini of one": ("gini", lambda: (rows("a"),), {}),
    "variance": ("variance", lambda: (rows("a"),), {}),
    "tau-a": ("kendall", lambda: (rows("a", "b"),), {"tau": "a"}),
    "tau-b": ("kendall", lambda: (rows("a", "b"),), {"tau": "b"}),
    "vus": ("vus", lambda: classes("a", of="y", order=(0, 1, 2)), {}),
    "energy": ("energy", lambda: classes("a", "b"), {}),
    "mmd": ("mmd", lambda: classes("a", "b"), {"bandwidth": 1.5}),
    "fmr of two": ("fmr", lambda: classes("a", "b"), {"threshold": 0.25}),
    "fmr of one": ("fmr", lambda: (rows("a", "b", "c"),), {"threshold": -0.25, "metric": "inner"}),
    "histogram": ("similarity-histogram", lambda: (rows("a", "b", "c"),), {"edges": [-1.0, -0.25, 0.5, 1.0]}),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", LIBRARY)
def test_the_command_line_says_what_the_library_says(here: Here, data: Path, name: str, how: str) -> None:
    given, options = HOW[how]
    kernel, samples, of_kernel = LIBRARY[name]
    done = here("d.csv", *COMPLETE[name][0], *given, "--seed", 8, "--json")
    if kernel in ("energy", "mmd") and how == "rotation":
        assert "rotation is for kernels of one point of each sample or two of one sample" in refusal(done)
        return
    found = result_of(done)
    if how == "as it is":  # the file's own shards: not the library's, whose samples have one each
        assert found["scheme"] == "as-is"
        if name == "histogram":  # a bias is of one statistic
            assert "bias" not in found
            return
        assert found["bias"][-1]["aggregate"] == "pooled"
        assert found["complete_value"] == pytest.approx(COMPLETE[name][1](), rel=1e-12)
        return
    expected = estimate_samples(SERIAL, samples(), kernel, seed=8, kernel_options=of_kernel, **options)
    summary = json.loads(json.dumps(expected.summary(), allow_nan=False))
    summary["flags"] = list(map(in_flags, summary["flags"]))
    for each in (found, summary):
        del each["seconds"]
        each["flags"] = [re.sub(r"of the sample (x|z|of the class '\w+')", "", flag) for flag in each["flags"]]
    del found["positive"], found["classes"]  # of which the library knows nothing
    assert found == summary
    if kernel in ("energy", "mmd") and how == "pooled":  # known from how the local values differ, if at all
        assert (found["stderr_method"], found["stderr"]) == ("none", None)
        assert found["flags"]
    else:
        assert np.all(np.array(found["stderr"]) > 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Samples and kernels of other kinds


def test_one_sample_or_two_by_the_label_alone(here: Here, data: Path) -> None:
    one = result_of(here("d.csv", "--kernel", "gini", "--columns", "a", "--complete", "--json"))
    two = result_of(here("d.csv", "--kernel", "gini", "--columns", "a", "--label", "two", "--complete", "--json"))
    assert (one["sizes"], two["sizes"]) == ([101], [len(each) for each in classes("a")])
    for name, sample in zip("xz", classes("a"), strict=True):
        np.save(f"{name}.npy", sample)
    files = result_of(here("--x", "x.npy", "--z", "z.npy", "--kernel", "gini", "--complete", "--json"))
    assert files["estimate"] == two["estimate"]
    np.savez("t.npz", a=rows("a"))
    archive = result_of(here("t.npz", "--kernel", "gini", "--complete", "--json"))
    assert archive["estimate"] == one["estimate"]


def test_classes_in_another_order(here: Here, data: Path) -> None:
    options = ["d.csv", "--columns", "a", "--kernel", "vus", "--complete", "--json"]
    numbers = result_of(here(*options, "--label", "y"))
    words = result_of(here(*options, "--label", "word", "--classes", "low, mid ,high"))
    assert words["estimate"] == numbers["estimate"]
    down = result_of(here(*options, "--label", "word", "--classes", "high,mid,low"))
    assert down["sizes"] == numbers["sizes"][::-1]
    assert down["estimate"] < numbers["estimate"]
    some = result_of(here(*options, "--label", "y", "--classes", "0,2"))
    assert some["sizes"] == numbers["sizes"][::2]


@pytest.mark.parametrize("kernel", ["auc", "product", "kernels_with_degrees:above"])
@pytest.mark.parametrize("way", [["--complete"], ["--workers", "3", "--rounds", "2"]])
def test_of_two_classes_the_last_is_positive(
    here: Here, data: Path, monkeypatch: pytest.MonkeyPatch, kernel: str, way: list[str]
) -> None:
    (data / "kernels_with_degrees.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(data)
    options = ["d.csv", "--columns", "a", "--kernel", kernel, *way, "--seed", 1, "--json"]
    same = {}
    for label, (low, high) in {"y": ("0", "2"), "word": ("low", "high"), "two": ("1", "0")}.items():
        found = result_of(here(*options, "--label", label, "--classes", f"{low},{high}"))
        assert (found["positive"], found["classes"]) == (high, [low, high])
        same[label] = [found[name] for name in ("estimate", "stderr", "sizes")]
    assert same["y"] == same["word"]
    chosen = result_of(here(*options, "--label", "two", "--positive", "0"))
    assert same["two"] == [chosen[name] for name in ("estimate", "stderr", "sizes")]
    assert chosen["positive"] == "0"
    if kernel != "product":
        vus = ["d.csv", "--columns", "a", "--kernel", "vus", "--complete", "--json", "--label", "y", "--classes", "0,2"]
        assert same["y"][0] > 0.7
        assert (result_of(here(*vus))["estimate"] - same["y"][0]) == pytest.approx(0, abs=0.05)


def test_the_table_tells_the_classes_of_the_samples(here: Here, data: Path) -> None:
    for options, expected in (
        (["--label", "two", "--classes", "1,0"], "of the class '0', m = .* of the class '1'"),
        (["--label", "two"], "of the class '1', m = .* of the class '0'"),
        (["--label", "word", "--kernel", "vus", "--classes", "high,low"], "of the class 'high', m = .* class 'low'"),
    ):
        done = here("d.csv", "--columns", "a", "--complete", *options)
        assert re.search(f"points +n = [0-9]+ {expected}", done.stdout), done.stdout


def test_lists_that_begin_with_a_minus_sign(here: Here, data: Path) -> None:
    (data / "signs.csv").write_text("s,y\n" + "".join(f"{k % 7},{k % 3 - 1}\n" for k in range(30)))
    options = ["signs.csv", "--kernel", "vus", "--label", "y", "--complete", "--json"]
    assert result_of(here(*options, "--classes", "-1,0,1"))["estimate"] == result_of(here(*options))["estimate"]
    options = ["d.csv", "--columns", "a,b", "--kernel", "similarity-histogram", "--complete", "--json"]
    apart, joined = (result_of(here(*options, *edges)) for edges in (["--edges", "-1,.5,1e0"], ["--edges=-1,.5,1e0"]))
    assert apart["estimate"] == joined["estimate"]
    assert apart["kernel_options"] == {"edges": [-1.0, 0.5, 1.0]}


KERNELS = """\
import numpy as np

def within(x, y):
    return np.abs(x - y.T)

within.degrees = (2,)

def ordered(x, y, z):
    return ((x < y) & (y < z))[:, 0].astype(float)

ordered.degrees = (1, 1, 1)
ordered.bounded = True

def above(x, z):
    return (x > z.T) + 0.5 * (x == z.T)
"""


def test_a_kernel_of_the_users_says_how_many_samples_it_wants(
    here: Here, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "kernels_with_degrees.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(data)
    for options, like in (
        (["--columns", "a", "--kernel", "kernels_with_degrees:within"], "gini of one"),
        (["--columns", "a", "--label", "y", "--kernel", "kernels_with_degrees:ordered"], "vus"),
    ):
        for way in (["--complete"], ["--workers", "4", "--rounds", "2"]):
            mine = result_of(here("d.csv", *options, *way, "--seed", 1, "--json"))
            named = result_of(here("d.csv", *COMPLETE[like][0], *way, "--seed", 1, "--json"))
            assert mine["estimate"] == pytest.approx(named["estimate"], rel=1e-12)
            assert mine["sizes"] == named["sizes"]
    told = refusal(here("d.csv", "--columns", "a", "--label", "y", "--kernel", "kernels_with_degrees:within"))
    assert told.startswith("a label is given for a statistic of one sample")
    told = refusal(
        here("d.csv", "--columns", "a", "--label", "y", "--classes", "0,1", "--kernel", "kernels_with_degrees:ordered")
    )
    assert "is for 3 samples, not 2" in told


def test_real_data(here: Here, data: Path, shared_data: Path) -> None:
    path = shared_data / "diamonds.csv.gz"
    found = result_of(here(path, "--kernel", "gini", "--columns", "price", "--complete", "--json"))
    prices = np.sort(np.loadtxt(path, delimiter=",", skiprows=1, usecols=price_column(path)))
    n = len(prices)
    assert n == found["n"] == 53940
    expected = 2.0 * math.fsum((2.0 * np.arange(n) - n + 1.0) * prices) / (n * (n - 1.0))
    assert found["estimate"] == pytest.approx(expected, rel=1e-12)


def price_column(path: Path) -> int:
    import gzip

    with gzip.open(path, "rt") as lines:
        return [name.strip('"\n') for name in next(lines).split(",")].index("price")


# ---------------------------------------------------------------------------------------------------------------------
# Several columns


def two_way_covariance() -> np.ndarray:
    """Return the unbiased covariance of the AUCs of all columns over all pairs: S_r/n + S_c/m - MS_rest/(nm)."""
    h = []
    for column in COLUMNS:
        x, z = classes(column)
        h.append((x[:, None] > z) + 0.5 * (x[:, None] == z))
    n, m = h[0].shape
    found = np.empty((3, 3))
    for i, j in itertools.product(range(3), repeat=2):
        rest = [each - each.mean(axis=1)[:, None] - each.mean(axis=0) + each.mean() for each in (h[i], h[j])]
        found[i, j] = (
            np.cov(h[i].mean(axis=1), h[j].mean(axis=1))[0, 1] / n
            + np.cov(h[i].mean(axis=0), h[j].mean(axis=0))[0, 1] / m
            - np.sum(rest[0] * rest[1]) / ((n - 1) * (m - 1) * n * m)
        )
    return found


def test_each_column_has_an_auc_and_any_two_a_difference(here: Here, data: Path) -> None:
    options = ["d.csv", "--columns", "a,b,c", "--label", "two", "--difference", "--confidence", "0.9"]
    found = result_of(here(*options, "--complete", "--json"))
    assert found["columns"] == list(COLUMNS)
    assert found["estimate"] == pytest.approx([auc(*classes(column)) for column in COLUMNS], rel=1e-13)
    covariance = np.array(found["covariance"])
    np.testing.assert_allclose(covariance, two_way_covariance(), rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), found["stderr"], rtol=1e-12)
    assert np.array(found["interval"]).shape == (3, 2)
    quantile = NormalDist().inv_cdf(0.95)
    differences = found["differences"]
    assert [(each["first"], each["second"]) for each in differences] == [(0, 1), (0, 2), (1, 2)]
    for each in differences:
        i, j = each["first"], each["second"]
        assert each["value"] == found["estimate"][i] - found["estimate"][j]
        variance = covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j]
        assert each["stderr"] == pytest.approx(math.sqrt(variance), rel=1e-12)
        ends = (each["interval"]["lower"], each["interval"]["upper"])
        assert ends == pytest.approx([each["value"] + side * quantile * each["stderr"] for side in (-1, 1)], rel=1e-9)
    printed = here(*options, "--complete")
    assert (printed.returncode, printed.stderr) == (0, "")
    lines = [line for line in printed.stdout.splitlines() if line.startswith("difference")]
    for line, each in zip(lines, differences, strict=True):
        pair = f"{COLUMNS[each['first']]} - {COLUMNS[each['second']]}"
        assert line.split(maxsplit=1)[1].startswith(f"{pair}: {each['value']!r} ± {each['stderr']:.3g}, [")
    for column, value in zip(COLUMNS, found["estimate"], strict=True):
        assert f"{column}: {value!r} ± " in printed.stdout
    quiet = here(*options, "--complete", "--quiet")
    assert quiet.stdout.splitlines() == [repr(value) for value in found["estimate"]]


@pytest.mark.parametrize("how", ["one round", "three rounds", "pooled", "distinct", "rotation", "skipping"])
def test_a_column_is_estimated_as_if_it_were_alone(here: Here, data: Path, how: str) -> None:
    options = ["d.csv", "--label", "two", *HOW[how][0], "--seed", 4, "--json"]
    together = result_of(here(*options, "--columns", "b,a"))
    for k, column in enumerate("ba"):
        alone = result_of(here(*options, "--columns", column))
        assert alone["columns"] is alone["covariance"] is None
        assert together["estimate"][k] == alone["estimate"]
        assert [each[k] for each in together["per_round"]] == alone["per_round"]
        assert together["stderr"][k] == pytest.approx(alone["stderr"], rel=1e-9)
        assert together["interval"][k] == pytest.approx(alone["interval"], rel=1e-9)
    assert together["n_pairs"] == alone["n_pairs"]


def test_many_differences_tell_how_far_they_are(here: Here, data: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    with telling(lambda what, done, total, _: heard.append((what, done, total))):
        result_of(here("d.csv", "--columns", "a,b,c", "--label", "two", "--difference", "--complete", "--json"))
    assert [each for each in heard if each[0] == "difference"] == [("difference", done, 3) for done in (1, 2, 3)]


def test_the_table_has_the_exact_bound_of_a_perfect_score(here: Here, data: Path) -> None:
    """All of three disjoint pairs are right with probability p³, which is 5 % at p = 0.05^(1/3)."""
    (data / "perfect.csv").write_text("s,y\n1,0\n2,0\n3,0\n4,1\n5,1\n6,1\n")
    done = here("perfect.csv", "--columns", "s", "--label", "y", "--complete")
    assert re.search(rf"^estimate +1\.0, \[{0.05 ** (1 / 3):.6g}, 1\]$", done.stdout, re.MULTILINE), done.stdout


def test_columns_that_are_equal_have_no_difference(here: Here, data: Path) -> None:
    (data / "twins.csv").write_text("s,t,y\n" + "".join(f"{k % 5},{k % 5},{k % 2}\n" for k in range(40)))
    options = ["twins.csv", "--columns", "s,t", "--label", "y", "--difference", "--complete"]
    (each,) = result_of(here(*options, "--json"))["differences"]
    assert (each["value"], each["stderr"], each["interval"]["lower"]) == (0.0, None, None)
    (line,) = (line for line in here(*options).stdout.splitlines() if line.startswith("difference"))
    assert line.split(maxsplit=1)[1] == "s - t: 0.0"


# ---------------------------------------------------------------------------------------------------------------------
# Error bars


def test_intervals_follow_from_value_standard_error_and_level(here: Here, data: Path) -> None:
    options = ["d.csv", *TWO, "--workers", 4, "--seed", 1, "--json"]
    default = result_of(here(*options))
    assert (default["confidence"], default["interval_method"]) == (0.95, "logit")
    assert default["stderr_method"] == "components"
    for level in (0.5, 0.95, 0.999):
        for kind in ("auto", "logit", "wald"):
            found = result_of(here(*options, "--confidence", level, "--interval", kind))
            value, error = found["estimate"], found["stderr"]
            assert (value, error) == (default["estimate"], default["stderr"])
            assert found["confidence"] == level
            assert found["interval_method"] == ("wald" if kind == "wald" else "logit")
            assert found["stderr_dof"] == default["stderr_dof"] > 20.0
            half = stdtrit(found["stderr_dof"], 0.5 + 0.5 * level) * error
            if kind == "wald":
                expected = [value - half, min(value + half, 1.0)]
            else:
                logits = [math.log(value / (1 - value)) + side * half / (value * (1 - value)) for side in (-1, 1)]
                expected = [1 / (1 + math.exp(-logit)) for logit in logits]
            assert found["interval"] == pytest.approx(expected, rel=1e-9)
    unbounded = result_of(here("d.csv", "--columns", "a", "--kernel", "gini", "--json"))
    assert unbounded["interval_method"] == "wald"
    printed = here(*options[:-1], "--confidence", "0.9").stdout
    assert "90 %, logit, from components" in printed


def test_without_a_standard_error(here: Here, data: Path) -> None:
    for options in (TWO, COMPLETE["energy"][0], COMPLETE["histogram"][0]):
        for way in (["--complete"], ["--workers", "3", "--reference"]):
            way = [*way, "--seed", "1", "--output", "n.h5", "--overwrite", "--json"]
            found = result_of(here("d.csv", *options, *way, "--no-stderr"))
            assert found["stderr"] is found["interval"] is found["covariance"] is found["stderr_method"] is None
            assert found["complete_stderr"] is None
            assert found["flags"] == []
            kept = {"stderr", "interval", "components", "covariance"}
            assert not any(name.removeprefix("complete_") in kept for name in load("n.h5").datasets)
            known = result_of(here("d.csv", *options, *way))
            assert known["estimate"] == pytest.approx(found["estimate"], rel=1e-12)
    printed = here("d.csv", *TWO, "--no-stderr").stdout
    assert "±" not in printed
    assert "interval" not in printed


def test_an_estimate_without_a_known_error_says_so(here: Here, data: Path) -> None:
    (data / "flat.csv").write_text("s,y\n" + "".join(f"1,{k % 2}\n" for k in range(40)))
    for options in (["--label", "y"], ["--kernel", "gini", "--columns", "s"]):
        done = here("flat.csv", "--columns", "s", *options, "--workers", 4, "--output", "f.h5", "--overwrite", "--json")
        found = result_of(done)
        assert found["stderr"] is found["interval"] is None
        assert any("told from zero" in flag for flag in found["flags"])
        file = load("f.h5")
        assert np.isnan(file.datasets["stderr"].values)
        assert np.isnan(file.datasets["interval"].values).all()
        assert file.config["flags"] == found["flags"]
        printed = here("flat.csv", "--columns", "s", *options, "--workers", 4).stdout
        assert printed.count("beware") == len(found["flags"])
        assert "±" not in printed


def test_samples_of_one_law_are_not_told_apart_by_a_normal_interval(here: Here, data: Path) -> None:
    rng = np.random.default_rng(3)
    np.savez("same.npz", s=rng.normal(size=200), y=np.arange(200) % 2)
    for kernel in ("energy", "mmd"):
        found = result_of(here("same.npz", "--label", "y", "--kernel", kernel, "--complete", "--json"))
        assert any("told from zero" in flag for flag in found["flags"])
        apart = result_of(here("d.csv", *COMPLETE[kernel][0], "--complete", "--seed", 1, "--json"))
        assert apart["flags"] == []


def test_what_a_discrepancy_has_learnt_of_the_points_is_told_everywhere(here: Here, data: Path) -> None:
    """The median distance, and the deviations of all columns but the label, which nobody has named."""
    columns = np.column_stack([rows("a", "b", "c"), rows("y")])
    np.savez("all.npz", **{name: values for name, values in table().items() if name != "word"})
    options = ["--label", "two", "--kernel", "mmd", "--bandwidth", "median", "--standardize", "--seed", "1"]
    for way in (["--complete"], ["--workers", "3"], ["--workers", "3", "--pairs", "9", "--rounds", "2"]):
        found = result_of(here("all.npz", *options, *way, "--json", "--output", "f.h5", "--overwrite"))
        scales, scaled = found["learnt"]["scales"], columns / columns.std(axis=0)
        assert scales == pytest.approx(columns.std(axis=0), rel=1e-14)
        assert found["learnt"]["bandwidth"] == pytest.approx(np.median(distance(*pairs_of(scaled))), rel=1e-13)
        assert found["learnt"]["bandwidth_points"] == 101
        assert found["kernel_options"] == {"bandwidth": "median", "standardize": "sd"}
        stored = load("f.h5")
        assert {name: stored.datasets[f"learnt/{name}"].values.tolist() for name in found["learnt"]} == found["learnt"]
        assert stored.config["data"]["columns"] == ["a", "b", "c", "y"]
        printed = here("all.npz", *options, *way).stdout
        assert f"bandwidth         {found['learnt']['bandwidth']!r}, the median of the distances between 101" in printed
        assert "divided by        " + ", ".join(f"{each:.6g}" for each in scales) in printed
    words = ["--label", "two", "--kernel", "energy", "--standardize", "iqr", "--complete", "--json"]
    given = here("d.csv", *words, "--columns", "a..y")
    quartiles = np.quantile(columns, [0.25, 0.75], axis=0)
    assert result_of(given)["learnt"]["scales"] == pytest.approx(quartiles[1] - quartiles[0], rel=1e-14)


def test_a_column_of_text_is_not_left_out_in_silence(here: Here, data: Path) -> None:
    told = refusal(here("d.csv", "--label", "two", "--kernel", "energy", "--complete"))
    assert "column 'word' has 'high', which is not a number" in told


def test_a_constant_column_is_called_by_its_name(here: Here, data: Path) -> None:
    np.savez("flat.npz", a=np.arange(40.0), dose=np.full(40, 3.0), y=np.arange(40) % 2)
    told = refusal(here("flat.npz", "--label", "y", "--kernel", "energy", "--standardize", "iqr", "--complete"))
    assert told == (
        "column 'dose' has an interquartile range of 0 over all samples together: leave it out of the columns, or use "
        "--standardize sd\n"
    )


def test_bias_of_shards_as_they_lie(here: Here, data: Path) -> None:
    found = result_of(here("d.csv", *TWO, "--workers", 3, "--bias-report", "--json"))
    shards = np.array_split(np.arange(101), 3)
    x, z = classes("a")
    values, pairs = [], []
    for shard in shards:
        labels = table()["two"][shard]
        parts = [table()["a"][shard][labels == label] for label in (1, 0)]
        values.append(auc(*parts))
        pairs.append(math.prod(map(len, parts)))
    whole = auc(x, z)
    expected = {"mean": np.mean(values) - whole, "pooled": np.average(values, weights=pairs) - whole}
    assert found["scheme"] == "as-is"
    assert found["complete_value"] == pytest.approx(whole, rel=1e-13)
    assert [each["aggregate"] for each in found["bias"]] == ["mean", "pooled"]
    for each in found["bias"]:
        assert each["difference"] == pytest.approx(expected[each["aggregate"]], rel=1e-9)
        assert each["z"] == pytest.approx(each["difference"] / each["stderr"], rel=1e-12)
    output = here("d.csv", *TWO, "--workers", 3, "--bias-report", "--output", "b.h5")
    assert (output.returncode, output.stderr) == (0, "")
    for each in found["bias"]:
        assert f"bias, {each['aggregate']}" in output.stdout
        assert f"{each['difference']!r} ({each['z']:.1f} times the {each['stderr']:.3g} of chance)" in output.stdout
        stored = load("b.h5").datasets[f"bias/{each['aggregate']}"]
        assert stored.values.tolist() == [each["difference"], each["stderr"]]
    (data / "sorted.csv").write_text("a\n" + "".join(f"{a}\n" for a in sorted(table()["a"].tolist())))
    biased = result_of(here("sorted.csv", "--kernel", "gini", "--workers", 3, "--bias-report", "--json"))
    assert biased["bias"][0]["z"] < -5.0
    only_pooled = result_of(here("d.csv", *COMPLETE["tau-b"][0], "--workers", 3, "--bias-report", "--json"))
    assert [each["aggregate"] for each in only_pooled["bias"]] == ["pooled"]


@pytest.mark.parametrize("name", ["auc", "gini of one", "tau-b", "vus", "fmr of one", "histogram"])
def test_a_rotation_that_has_met_all_pairs_is_the_complete_statistic(here: Here, data: Path, name: str) -> None:
    n_rounds = {"auc": 3, "vus": 9}.get(name, 2)
    options = [*COMPLETE[name][0], "--workers", "3", "--scheme", "rotation", "--rounds", str(n_rounds)]
    found = result_of(here("d.csv", *options, "--reference", "--json"))
    assert found["estimate"] == pytest.approx(found["complete_value"], rel=1e-12)
    assert found["aggregate"] == "pooled"
    assert np.array(found["stderr"]) == pytest.approx(np.array(found["complete_stderr"]), rel=0.5)
    more = [*options[:-1], str(n_rounds + 1)]
    told = refusal(here("d.csv", *more))
    assert told.startswith(f"after {n_rounds} rounds rotation over 3 workers has met all pairs")


# ---------------------------------------------------------------------------------------------------------------------
# Files


FILES: dict[str, tuple[list[str], tuple[int, int]]] = {
    "auc": (TWO, (3, 1)),
    "gini of one": (COMPLETE["gini of one"][0], (2, 1)),
    "tau-b": (COMPLETE["tau-b"][0], (2, 3)),
    "vus": (COMPLETE["vus"][0], (7, 1)),
    "energy": (COMPLETE["energy"][0], (0, 0)),
    "columns": (["--columns", "a,b,c", "--label", "two"], (3, 3)),
    "histogram": (COMPLETE["histogram"][0], (2, 3)),
}
"""Options, and the numbers of components and parts."""


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_the_file_holds_the_error_bar(here: Here, data: Path, name: str, complete: bool) -> None:
    options, (n_components, n_parts) = FILES[name]
    way = ["--complete"] if complete else ["--workers", "5", "--rounds", "2", "--reference", "--seed", "2"]
    found = result_of(here("d.csv", *options, *way, "--output", "r.h5", "--json"))
    file = load("r.h5")
    datasets = file.datasets
    several = name in ("columns", "histogram")
    dims = ("column",) if several else ()
    assert file.kind == "estimate"
    for prefix in ("", "complete_"):
        if prefix and complete:
            assert not {name for name in datasets if name.startswith("complete_")} - {
                "complete_value",
                "complete_bytes_moved",
            }
            continue
        stderr, interval = datasets[f"{prefix}stderr"], datasets[f"{prefix}interval"]
        assert stderr.dims == dims
        assert stderr.values.tolist() == found[f"{prefix}stderr"]
        assert interval.dims == (*dims, "lower and upper")
        if not prefix:
            assert interval.values.tolist() == found["interval"]
        if n_components:
            components = datasets[f"{prefix}components"]
            assert components.values.shape == (n_components, n_parts, n_parts)
            assert components.dims == ("component", "part", "other part")
        else:
            assert f"{prefix}components" not in datasets
        if several:
            covariance = datasets[f"{prefix}covariance"]
            assert covariance.dims == ("column", "other column")
            assert covariance.values.shape == (3, 3)
            np.testing.assert_array_equal(covariance.values, covariance.values.T)
            assert np.sqrt(np.diagonal(covariance.values)).tolist() == found[f"{prefix}stderr"]
        else:
            assert f"{prefix}covariance" not in datasets
    to_complete = datasets["stderr_to_complete"]
    assert to_complete.dims == dims
    unknown = [None if np.isnan(each) else each for each in np.atleast_1d(to_complete.values).tolist()]
    assert (unknown if several else unknown[0]) == found["stderr_to_complete"]
    if complete:
        assert not to_complete.values.any()
        assert set(np.atleast_1d(found["z_to_complete"])) == {None}
    elif name == "energy":
        assert found["stderr_to_complete"] is found["z_to_complete"] is None
    else:
        apart = np.array(found["estimate"]) - np.array(found["complete_value"])
        assert found["z_to_complete"] == pytest.approx((apart / to_complete.values).tolist(), rel=1e-12)
    assert datasets["estimate"].values.tolist() == found["estimate"]
    assert datasets["complete_value"].values.tolist() == found["complete_value"]
    assert datasets["complete_value"].dims == dims
    assert datasets["sizes"].values.tolist() == found["sizes"]
    assert ("m" in datasets) == (len(found["sizes"]) > 1)
    assert file.config["columns"] == (list(COLUMNS) if name == "columns" else [])
    if not complete:
        assert datasets["per_worker/value"].dims == ("round", "worker", *dims)
        assert datasets["per_round/value"].dims == ("round", *dims)
        assert datasets["per_worker/n_pairs"].dims == ("round", "worker")
        assert datasets["per_worker/n_pairs"].values.sum() == found["n_pairs"]


@pytest.mark.parametrize(("name", "complete"), [*((name, False) for name in FILES), ("columns", True), ("tau-b", True)])
def test_files_are_shown_and_drawn(
    here: Here, data: Path, capfd: pytest.CaptureFixture[str], name: str, complete: bool
) -> None:
    pytest.importorskip("matplotlib")
    from mpi_ustat.app.cli import main

    way = ["--complete"] if complete else ["--workers", "5", "--reference", "--seed", "2"]
    found = result_of(here("d.csv", *FILES[name][0], *way, "--output", "r.h5", "--json"))
    assert main(["info", "r.h5"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    for value in np.atleast_1d(found["estimate"]).tolist() + np.atleast_1d(found["complete_value"]).tolist():
        assert repr(value) in out
    assert "standard error to U_n" in out
    for error in np.atleast_1d(found["stderr"]).tolist():
        assert f"{error:.4g}" in out
    assert main(["plot", "r.h5"]) == 0
    assert capfd.readouterr() == ("r.png\n", "")
    assert (data / "r.png").read_bytes().startswith(b"\x89PNG")


# ---------------------------------------------------------------------------------------------------------------------
# Ranks


DRIVER = """\
import json, sys
from mpi_ustat.app.cli import main

with open(sys.argv[1]) as lines:
    for line in lines:
        code = main(json.loads(line))
        if code:
            sys.exit(code)
"""


def test_four_ranks_give_the_same_numbers(mpirun: Mpirun, here: Here, data: Path) -> None:
    """One launch for all statistics: all that commands say and write, but bytes and seconds, as in one process."""
    rotating = {"vus", "tau-b", "fmr of one", "histogram"}
    commands = [
        ["d.csv", *COMPLETE[name][0], *way, "--seed", "6", "--workers", "5", "--reference", "--json"]
        for name, way in [
            *((name, ["--rounds", "2", *["--scheme", "rotation"] * (name in rotating)]) for name in LIBRARY),
            ("auc", ["--bias-report"]),
            ("tau-a", ["--pairs", "20", "--distinct"]),
        ]
    ]
    commands.append(["d.csv", *FILES["columns"][0], "--difference", "--workers", "5", "--seed", "6", "--json"])
    with_files = [[*words, "--output", f"{{}}{k}.h5"] for k, words in enumerate(commands)]
    (data / "driver.py").write_text(DRIVER)
    (data / "commands").write_text(
        "".join(json.dumps(["estimate", *(word.format("four") for word in words)]) + "\n" for words in with_files)
    )
    done = mpirun(4, "commands", program=["driver.py"], cwd=data)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(commands)
    for k, (line, words) in enumerate(zip(lines, with_files, strict=True)):
        four, one = parsed(line), result_of(here(*(word.format("one") for word in words)))
        assert (four.pop("n_ranks"), one.pop("n_ranks")) == (4, 1)
        for each in (four, one):
            del each["seconds"], each["bytes_moved"]
        assert four == one, words
        files = [load(f"{name}{k}.h5").datasets for name in ("four", "one")]
        assert files[0].keys() == files[1].keys()
        for name in files[0]:
            if not name.startswith("seconds/") and "bytes_moved" not in name:
                assert files[0][name].values.tobytes() == files[1][name].values.tobytes(), (words, name)


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


WRONG: dict[str, tuple[list[str], str]] = {
    "tau of an AUC": ([*TWO, "--tau", "a"], "the kernel auc has no option tau"),
    "bandwidth of an AUC": ([*TWO, "--bandwidth", "1"], "the kernel auc has no option bandwidth"),
    "edges of an fmr": ([*PAIR, "--kernel", "fmr", "--edges", "0,1"], "the kernel fmr has no option edges"),
    "metric of an energy": (
        [*PAIR, "--label", "two", "--kernel", "energy", "--metric", "inner"],
        "the kernel energy has no option metric: it has alpha, standardize",
    ),
    "threshold of tau": ([*PAIR, "--kernel", "kendall", "--threshold", "0"], "the kernel kendall has no option thresh"),
    "ties of a Gini": ([*TWO, "--kernel", "gini", "--ties", "strict"], "the kernel gini has no option ties"),
    "shared ties of an AUC": ([*TWO, "--ties", "shared"], "ties must be half or strict, not 'shared'"),
    "half ties of a VUS": ([*COMPLETE["vus"][0], "--ties", "half"], "ties must be strict or shared, not 'half'"),
    "no such tau": ([*PAIR, "--kernel", "kendall", "--tau", "c"], "invalid choice: 'c'"),
    "difference of one": ([*TWO, "--difference"], "a difference is one of several columns"),
    "difference of products": (
        [*PAIR, "--label", "two", "--kernel", "product", "--difference"],
        "a difference is one of several columns",
    ),
    "difference without error": (
        [*PAIR, "--label", "two", "--difference", "--no-stderr"],
        "a difference comes with its standard error: leave out --no-stderr",
    ),
    "label of one sample": ([*TWO, "--kernel", "variance"], "a label is given for a statistic of one sample"),
    "label of tau": ([*PAIR, "--label", "two", "--kernel", "kendall"], "a label is given for a statistic of one"),
    "positive of one sample": ([*ONE, "--kernel", "gini", "--positive", "1"], "a label is given for a statistic of on"),
    "classes of one sample": ([*ONE, "--kernel", "gini", "--classes", "0,1"], "a label is given for a statistic of on"),
    "no label": ([*ONE], "no label column of 'd.csv' is chosen"),
    "no label for energy": ([*PAIR, "--kernel", "energy"], "no label column of 'd.csv' is chosen"),
    "no label for a VUS": ([*ONE, "--kernel", "vus"], "no label column of 'd.csv' is chosen"),
    "absent class": (
        [*ONE, "--kernel", "vus", "--label", "y", "--classes", "0,1,3"],
        "has the values '0', '1', '2', not '3': give some of them to --classes",
    ),
    "class twice": ([*ONE, "--kernel", "vus", "--label", "y", "--classes", "0,1,0"], "the class '0' is given twice"),
    "one class": ([*ONE, "--kernel", "vus", "--label", "y", "--classes", "2"], "gives one class only"),
    "order of words": (
        [*ONE, "--kernel", "vus", "--label", "word"],
        "has the values 'high', 'low', 'mid': say their order with --classes, the lowest first",
    ),
    "classes and a positive one": (
        [*TWO, "--classes", "0,1", "--positive", "1"],
        "the classes say already which label comes first",
    ),
    "three classes of an AUC": (
        [*ONE, "--label", "y", "--classes", "0,1,2"],
        "the kernel auc is for 2 samples, not 3",
    ),
    "rotation too long": (
        [*TWO, "--scheme", "rotation", "--workers", "4", "--rounds", "5"],
        "after 4 rounds rotation over 4 workers has met all pairs, so that 5 are too many: use --complete, or at most",
    ),
    "rotation of one, too long": (
        [*ONE, "--kernel", "gini", "--scheme", "rotation", "--workers", "4", "--rounds", "4"],
        "after 3 rounds rotation over 4 workers has met all pairs",
    ),
    "rotation of one, mean": (
        [*ONE, "--kernel", "gini", "--scheme", "rotation", "--workers", "4", "--aggregate", "mean"],
        "rotation of one sample has no mean of local values: use --aggregate pooled",
    ),
    "rotation of an energy": (
        [*TWO, "--kernel", "energy", "--scheme", "rotation"],
        "rotation is for kernels of one point of each sample or two of one sample, not of 2 and 2 points",
    ),
    "mean of tau-b": (
        [*PAIR, "--kernel", "kendall", "--aggregate", "mean"],
        "the kernel kendall has no mean of local values: use --aggregate pooled",
    ),
    "edges of letters": (
        [*PAIR, "--kernel", "similarity-histogram", "--edges", "0,x"],
        "the edges are '0,x': give numbers between commas",
    ),
    "no edges": ([*PAIR, "--kernel", "similarity-histogram", "--edges", ""], "the edges are '': give numbers between"),
    "one edge": ([*PAIR, "--kernel", "similarity-histogram", "--edges", "0"], "at least two finite numbers"),
    "nan edge": ([*PAIR, "--kernel", "similarity-histogram", "--edges", "0,nan"], "at least two finite numbers"),
    "descending edges": ([*PAIR, "--kernel", "similarity-histogram", "--edges", "1,0"], "each larger than the last"),
    "confidence 0": ([*TWO, "--confidence", "0"], "the confidence is 0.0: give a number between 0 and 1, such as 0.95"),
    "confidence 1": ([*TWO, "--confidence", "1"], "the confidence is 1.0: give a number between 0 and 1"),
    "confidence 95": ([*TWO, "--confidence", "95"], "the confidence is 95.0: give a number between 0 and 1"),
    "confidence nan": ([*TWO, "--confidence", "nan"], "the confidence is nan: give a number between 0 and 1"),
    "no such interval": ([*TWO, "--interval", "exact"], "invalid choice: 'exact'"),
    "tau of one column": ([*ONE, "--kernel", "kendall"], "compares points of 2 numbers but the sample x has 1 column"),
    "tau of three columns": (
        ["--columns", "a,b,c", "--kernel", "kendall"],
        "compares points of 2 numbers but the sample x has 3 columns: choose 2 columns",
    ),
    "columns of a VUS": (
        [*PAIR, "--kernel", "vus", "--label", "y"],
        "the kernel vus compares single numbers but the sample of the class '0' has 2 columns: choose one column",
    ),
    "bandwidth of a word": (
        [*TWO, "--kernel", "mmd", "--bandwidth", "mean"],
        "the bandwidth must be a number or median, not 'mean'",
    ),
    "alpha 3": (
        [*TWO, "--kernel", "energy", "--alpha", "3"],
        "the exponent alpha must be a number above 0 and up to 2",
    ),
    "alpha of an MMD": ([*TWO, "--kernel", "mmd", "--alpha", "1"], "the kernel mmd has no option alpha: it has kernel"),
    "bandwidth 0": ([*TWO, "--kernel", "mmd", "--bandwidth", "0"], "the bandwidth must be a positive number"),
    "threshold 2": ([*PAIR, "--kernel", "fmr", "--threshold", "2"], "the threshold of a cosine similarity can't be 2"),
    "distinct of all": ([*TWO, "--distinct"], "all local pairs are distinct anyway"),
    "complete and distinct": ([*TWO, "--complete", "--distinct"], "all local pairs are distinct anyway"),
    "complete and rounds": ([*TWO, "--complete", "--rounds", "2"], "leave out --rounds"),
    "bias and rounds": ([*TWO, "--bias-report", "--rounds", "2"], "leave out --rounds"),
    "bias and complete": ([*TWO, "--bias-report", "--complete"], "leave out --complete"),
    "bias of columns": ([*PAIR, "--label", "two", "--bias-report"], "--bias-report is about one statistic"),
    "too many workers for pairs": (
        [*ONE, "--kernel", "gini", "--workers", "51"],
        "51 workers can't each have 2 points of a sample of 101: use at most 50 workers",
    ),
    "energy with replacement": (
        [*TWO, "--kernel", "energy", "--scheme", "prop-swr"],
        "drawn with replacement, a point would be paired with itself by the kernel energy",
    ),
    "unknown kernel": (
        [*TWO, "--kernel", "acu"],
        "there is no kernel 'acu' (did you mean 'auc'?): use one of auc, vus, gini",
    ),
    "word as a number": (["--columns", "word", "--kernel", "gini"], "column 'word' has"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_users_mistake_is_told_in_one_sentence(here: Here, data: Path, name: str) -> None:
    arguments, sentence = WRONG[name]
    before = listing(data)
    told = refusal(here("d.csv", *arguments, "--output", "out.h5", "--json"))
    assert sentence in told
    assert listing(data) == before


def test_samples_in_files_have_no_classes(here: Here, data: Path) -> None:
    np.save("x.npy", np.arange(9.0))
    for words in (["--label", "y"], ["--classes", "0,1"], ["--positive", "1"]):
        told = refusal(here("--x", "x.npy", "--z", "x.npy", *words))
        assert told.startswith("a label is given beside a file per sample: leave it out")
    told = refusal(here("--x", "x.npy", "--z", "x.npy", "--kernel", "variance"))
    assert told.startswith("the kernel variance is for 1 sample, not 2")
    assert "only one of the two samples has a file" in refusal(here("--x", "x.npy", "--kernel", "gini"))
    assert "only one of the two samples has a file" in refusal(here("--z", "x.npy", "--kernel", "variance"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--kernel", "kendall", "--columns", "s,t"],
            "Kendall's tau-b is not defined: all pairs of column x that were looked at are tied",
        ),
        (["--kernel", "fmr", "--columns", "u,v"], "a point is the zero vector, which has no direction and no cosine"),
        (["--kernel", "variance", "--columns", "w"], "the sum of the kernel variance over the pairs overflows"),
    ],
)
@pytest.mark.parametrize("way", [["--complete"], ["--workers", "2"]])
def test_points_without_a_value(here: Here, data: Path, options: list[str], sentence: str, way: list[str]) -> None:
    rows_of_text = [f"1,{k},{k % 2},0,{(-1) ** k}e200" for k in range(12)]
    (data / "odd.csv").write_text("s,t,u,v,w\n" + "\n".join(rows_of_text) + "\n")
    before = listing(data)
    assert sentence in refusal(here("odd.csv", *options, *way, "--output", "out.h5", "--json"))
    assert listing(data) == before


def test_large_numbers_have_a_value_if_no_error(here: Here, data: Path) -> None:
    """The squares of their distances overflow: no word of NumPy's about it."""
    (data / "large.csv").write_text("s\n" + "".join(f"{(-1) ** k * k}e199\n" for k in range(40)))
    for way in (["--complete"], ["--workers", "2"]):
        found = result_of(here("large.csv", "--kernel", "gini", *way, "--json"))
        assert found["estimate"] > 1e199
        assert found["stderr"] is found["interval"] is None


def test_tuples_of_three_are_not_called_pairs(here: Here, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "kernels_with_degrees.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(data)
    options = ["--columns", "a", "--label", "y", "--kernel", "kernels_with_degrees:ordered"]
    for way in (["--complete"], ["--workers", "2"], ["--workers", "2", "--pairs", "9", "--aggregate", "pooled"]):
        told = here("d.csv", *options, *way).stdout
        table = [line for line in told.splitlines() if not line.startswith("beware")]
        assert any(line.startswith("tuples ") for line in table)
        assert "pairs" not in "".join(table)


def test_a_sample_of_one_point_needs_more_points_not_more_workers(here: Here, data: Path) -> None:
    (data / "one.csv").write_text("s,y\n1.5,1\n1,0\n2,0\n")
    for way in (["--complete"], ["--workers", "1"]):
        found = result_of(here("one.csv", "--columns", "s", "--label", "y", *way, "--json"))
        assert any("more points are needed" in flag for flag in found["flags"])
        assert not any("workers" in flag for flag in found["flags"])


# --- what is estimated where nobody says it


@pytest.mark.parametrize("kernel", ["auc", "energy"])
def test_all_pairs_are_the_default(here: Here, data: Path, kernel: str) -> None:
    options = ["--label", "y", "--classes", "0,2", "--columns", "a", "--kernel", kernel, "--seed", "1", "--json"]
    found, want = (result_of(here("d.csv", *options, *complete)) for complete in ((), ("--complete",)))
    assert found.pop("seconds") and want.pop("seconds")
    assert found == want and found["complete"]
    rounds = result_of(here("d.csv", *options, "--checkpoint", "d.ck"))  # without --workers, which are the ranks
    assert (rounds["complete"], rounds["n_workers"], rounds["n_rounds"]) == (False, 1, 1)


def test_what_would_take_long_is_refused_in_the_command_lines_words(
    here: Here, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_default, "_MOST_SECONDS", 0.0)
    monkeypatch.setattr(by_default, "_FEW", 1)
    options = ["--columns", "a,b", "--kernel", "fmr"]
    told = refusal(here("d.csv", *options))
    assert told.startswith("the kernel fmr looks at every pair, and all 5.05e+03 would take about ")
    assert ": give --complete to have that, or --workers and --rounds for an estimate by rounds; plan tells" in told
    assert here("d.csv", *options, "--complete").returncode == 0
