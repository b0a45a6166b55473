"""Whether confidence intervals cover: the models' truths, that the study is the library's, and what is made of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat import SerialComm, estimate_samples, montecarlo
from mpi_ustat.app.experiments_coverage import coverage, coverage_table
from mpi_ustat.coverage import (
    DOUBTFUL_MODELS,
    ESTIMATORS,
    MODELS,
    N_WORKERS,
    STATISTICS,
    Coverage,
    Model,
    gini,
    normal_kendall,
    normal_product,
    normal_scores,
    normal_vus,
    two_point,
)
from mpi_ustat.montecarlo import run_study
from mpi_ustat.parallel.rng import Streams
from mpi_ustat.storage.results import ResultFile, load

Floats = NDArray[np.float64]

ALL = MODELS | DOUBTFUL_MODELS
KINDS = ("AUC, two points, ε = 0.1", "Gini, lognormal", "VUS, normal scores")
"""A kernel of each shape: two samples, one sample, three samples."""


# ---------------------------------------------------------------------------------------------------------------------
# The truth


@pytest.mark.parametrize("law", ["normal", "exponential", "lognormal"])
def test_the_gini_mean_difference_is_twice_the_integral_of_f_times_one_minus_f(law: str) -> None:
    from scipy import integrate, stats

    cdf = {"normal": stats.norm.cdf, "exponential": stats.expon.cdf, "lognormal": stats.lognorm(1.0).cdf}[law]
    cuts = [-40.0, -1.0, 0.0, 0.3, 1.0, 3.0, 10.0, 100.0, 1e3, 1e5]  # pieces for the quadrature

    def spread(x: float) -> float:
        return 2.0 * float(cdf(x) * (1.0 - cdf(x)))

    pieces = itertools.pairwise(cuts)
    integral = math.fsum(integrate.quad(spread, a, b, epsabs=1e-13, epsrel=1e-11, limit=200)[0] for a, b in pieces)
    assert gini(law).truth == pytest.approx(integral, rel=1e-8)


def test_truths_of_normal_laws_are_orthant_probabilities() -> None:
    from scipy import stats

    def orthant(mean: list[float], covariance: list[list[float]]) -> float:
        """P(all components > 0)."""
        return float(stats.multivariate_normal(np.negative(mean), covariance).cdf(np.zeros(len(mean))))

    for rho in (-0.8, 0.0, 0.5):
        same_sign = 2.0 * orthant([0.0, 0.0], [[1.0, rho], [rho, 1.0]])
        assert normal_kendall(rho).truth == pytest.approx(2.0 * same_sign - 1.0, abs=1e-9)
    # X₁ - X₀ and X₂ - X₁ have mean 1 and variance 2, and covariance -Var X₁.
    assert normal_vus().truth == pytest.approx(orthant([1.0, 1.0], [[2.0, -1.0], [-1.0, 2.0]]), abs=1e-9)
    assert normal_scores(1.0).truth == pytest.approx(stats.norm.cdf(1.0, scale=math.sqrt(2.0)), rel=1e-14)


def brute_force(model: Model, samples: tuple[Floats, ...]) -> float:
    """Return the average of h over all tuples, by its definition."""
    if model.kernel in ("auc", "product"):
        x, z = samples
        return float(np.mean(z < x[:, None])) if model.kernel == "auc" else float(np.mean(np.outer(x, z)))
    if model.kernel == "vus":
        low, middle, high = samples
        below, above = (low[:, None] < middle).astype(float), (middle[:, None] < high).astype(float)
        return float(np.mean(below @ above / len(middle)))
    points = samples[0]
    i, j = np.triu_indices(len(points), 1)
    differences = points[i] - points[j]
    return float(np.mean(np.abs(differences) if model.kernel == "gini" else np.prod(np.sign(differences), axis=1)))


@pytest.mark.parametrize("name", ALL)
def test_the_samples_of_a_model_have_its_truth(name: str) -> None:
    """The mean of 60 runs is within 5 of its standard errors; Student's law with 59 degrees: 5·10⁻⁶ a model."""
    model, streams = ALL[name](), Streams(11)
    found = []
    for run in range(60):
        samples = model.draw(streams, run)
        assert tuple(map(len, samples)) == model.sizes
        found.append(brute_force(model, samples))
    assert abs(np.mean(found) - model.truth) < 5.0 * np.std(found, ddof=1) / math.sqrt(len(found))
    assert len(set(found)) > 1


def test_the_models_are_those_that_were_asked_for() -> None:
    assert two_point(0.1).truth == pytest.approx(0.99, rel=1e-15)
    assert normal_product(0.0).truth == 0.0 and normal_product(1.0).truth == 1.0
    assert gini("lognormal").truth == pytest.approx(2.0 * math.exp(0.5) * math.erf(0.5), rel=1e-14)
    sizes = {name: make().sizes for name, make in ALL.items()}
    assert sizes.pop("VUS, normal scores") == (200, 200, 100)
    assert all(each == ((500,) if name.startswith(("Gini", "Kendall")) else (500, 200)) for name, each in sizes.items())
    assert len(ALL) == 10 and len(ESTIMATORS) == 6 and N_WORKERS == 10


# ---------------------------------------------------------------------------------------------------------------------
# The study


@pytest.mark.parametrize("name", KINDS)
def test_an_outcome_is_what_a_user_gets(name: str) -> None:
    model, seed = ALL[name](), 5
    values = Coverage(model, 1, seed).by_one_rank()(range(1))
    assert {name: each.shape for name, each in values.items()} == dict.fromkeys(STATISTICS, (1, 6))
    samples = model.draw(Streams(seed), 0)
    options: dict[str, Any] = {"n_workers": 10, "seed": seed}
    for j, more in enumerate(ESTIMATORS.values()):
        found = {statistic: float(each[0, j]) for statistic, each in values.items()}
        given, wald = (
            estimate_samples(SerialComm(), samples, model.kernel, **options, **more, interval=kind)
            for kind in ("auto", "wald")
        )
        assert given.error is not None
        assert given.error.intervals[0].method == ("wald" if model.kernel == "gini" else "logit")
        assert found["estimate"] == given.value
        assert found["variance"] == given.error.covariance[0, 0]
        assert found["flags"] == len(given.error.flags)
        low, high = wald.interval
        assert found["wald"] == (low <= model.truth <= high)
        low, high = given.interval
        assert math.isnan(found["logit"]) if model.kernel == "gini" else found["logit"] == (low <= model.truth <= high)


def test_a_run_without_an_interval_neither_holds_nor_misses_and_is_flagged() -> None:
    """With ε = 0 no pair is ever misordered: the AUC is 1 and its estimated variance 0."""
    values = Coverage(two_point(0.0), 2, 1).by_one_rank()(range(2))
    assert np.isnan(values["wald"]).all() and np.isnan(values["logit"]).all()
    assert np.all(values["estimate"] == 1.0) and np.all(values["flags"] > 0)


@pytest.mark.parametrize("name", KINDS)
def test_the_values_are_the_same_bits_however_the_runs_are_spread(
    comm: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(montecarlo, "_SECONDS_PER_CHUNK", 0.0)  # one run a rank and chunk
    n_runs = 3  # the last chunk of two ranks leaves one idle
    study = Coverage(ALL[name](), n_runs, 7)
    expected = study.by_one_rank()(range(n_runs))
    for spread, start in (("runs", 0), ("workers", 0), ("runs", 2)):
        chunks = list(run_study(comm, study, start=start, spread=spread))
        assert [run for runs, _ in chunks for run in runs] == list(range(start, n_runs))
        for statistic in STATISTICS:
            found = np.concatenate([values[statistic] for _, values in chunks])
            assert found.tobytes() == expected[statistic][start:].tobytes(), statistic


@pytest.mark.parametrize("name", MODELS)
def test_intervals_cover_where_they_are_to(name: str) -> None:
    """Of 40 intervals that hold the truth with probability 0.94, fewer than 29 do with probability 3·10⁻⁶ a cell."""
    values = Coverage(ALL[name](), 40, 21).by_one_rank()(range(40))
    kind = "logit" if name.startswith(("AUC", "VUS")) else "wald"
    held = values[kind].sum(axis=0)
    assert np.all(held >= 29), dict(zip(ESTIMATORS, held, strict=True))
    assert np.all((values["flags"] > 0).mean(axis=0) < 0.5)


@pytest.mark.parametrize("name", DOUBTFUL_MODELS)
def test_the_program_raises_doubts_where_it_is_to(name: str) -> None:
    """Of 20 runs that are flagged with probability 0.7, fewer than 5 are with probability 6·10⁻⁶ a cell."""
    values = Coverage(ALL[name](), 20, 31).by_one_rank()(range(20))
    assert np.all((values["flags"] > 0).sum(axis=0) >= 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_coverage_is_95_per_cent_give_or_take_one(name: str) -> None:
    """2000 runs: 95 ± 1 % and 4.5 standard errors, of √(0.94·0.06/2000)."""
    values = Coverage(ALL[name](), 2000, 41).by_one_rank()(range(2000))
    share = values["logit" if name.startswith(("AUC", "VUS")) else "wald"].mean(axis=0)
    assert np.all(np.abs(share - 0.95) < 0.01 + 4.5 * math.sqrt(0.94 * 0.06 / 2000))


# ---------------------------------------------------------------------------------------------------------------------
# What is made of the runs


N_RUNS = 40


def made_up() -> ResultFile:
    """Return a result of made-up outcomes: cell (i, j) holds the truth in 40 - i - j runs, and is flagged in j."""
    experiment = coverage(n_runs=N_RUNS, seed=1)
    values = {}
    for i, name in enumerate(experiment.studies):
        each = {statistic: np.zeros((N_RUNS, 6)) for statistic in STATISTICS}
        each["estimate"] += np.arange(N_RUNS)[:, None] + i
        each["variance"] += 2.0
        for j in range(6):
            each["wald"][: N_RUNS - i - j, j] = 1.0
            each["flags"][:j, j] = 2.0
        each["logit"] = np.ones_like(each["wald"]) if "AUC" in name or "VUS" in name else np.full((N_RUNS, 6), np.nan)
        if name == "product, means 0":
            each["wald"][:20] = np.nan
        values[name] = each
    datasets, scales = experiment.summarise(values)
    return ResultFile("coverage", experiment.config, {}, datasets, scales)


def test_the_summary_counts_the_runs() -> None:
    result = made_up()
    assert result.scales["estimator"].tolist() == list(ESTIMATORS)
    assert result.scales["model"].tolist() == list(ALL)
    of = {name: dataset.values for name, dataset in result.datasets.items()}
    np.testing.assert_array_equal(of["truth"], [make().truth for make in ALL.values()])
    i, j = np.indices((10, 6))
    none = list(ALL).index("product, means 0")
    held = np.where(i == none, 20 - i - j, N_RUNS - i - j)
    count = np.where(i == none, 20, N_RUNS)
    np.testing.assert_allclose(of["wald/coverage"], held / count, rtol=1e-15)
    np.testing.assert_array_equal(of["wald/intervals"], count)
    np.testing.assert_allclose(of["wald/standard_error"], np.sqrt(held * (count - held) / count**3), rtol=1e-13)
    bounded = np.array([make().kernel in ("auc", "vus") for make in ALL.values()])
    np.testing.assert_array_equal(of["logit/coverage"][bounded], np.ones((4, 6)))
    assert np.isnan(of["logit/coverage"][~bounded]).all() and not of["logit/intervals"][~bounded].any()
    np.testing.assert_allclose(of["flagged"], np.arange(6) / N_RUNS * np.ones((10, 1)), rtol=1e-15)
    np.testing.assert_allclose(of["mean"], 19.5 + i, rtol=1e-15)
    np.testing.assert_allclose(of["variance"], N_RUNS * (N_RUNS + 1) / 12.0, rtol=1e-13)
    assert of["runs/wald"].shape == (10, 6, N_RUNS)
    assert (of["runs/wald"][none, 0] == np.repeat([-1, 1, 0], [20, 20 - none, none])).all()
    assert of["runs/flags"][2, 3].sum() == 6


def test_the_table_has_a_row_for_each_model_and_bold_for_the_interval_that_is_given() -> None:
    table = coverage_table(made_up()).splitlines()
    assert "95 % intervals" in table[0] and f"{N_RUNS} runs, standard error 3.4" in table[0]
    rows = {line.split(" | ")[0].strip("| "): line for line in table if line.startswith("| ")}
    assert set(rows) == {"model", *ALL}
    assert rows["model"] == f"| model | {' | '.join(ESTIMATORS)} |"
    cells = rows["AUC, normal scores"].strip("| ").split(" | ")[1:]
    assert cells[:2] == ["97.5 / **100.0** (0)", "95.0 / **100.0** (2)"] and len(cells) == 6
    assert "| **95.0** / – (0) | **92.5** / – (2) |" in rows["product, means 1"]
    doubtful = table[table.index("Where the normal limit is far:") :]
    assert [line for line in doubtful if line.startswith("| ")][1:] == [rows[name] for name in DOUBTFUL_MODELS]
    assert len([line for line in table if line.startswith("|---|")]) == 2


def test_the_picture_shows_what_the_file_holds() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.container import ErrorbarContainer

    from mpi_ustat.app.figures_paper import draw

    result = made_up()
    figure = draw(result)
    left, right = figure.axes
    for axes, names in ((left, list(MODELS)), (right, list(DOUBTFUL_MODELS))):
        places = [list(ALL).index(name) for name in names]
        drawn, ends = [], []
        for container in axes.containers:
            assert isinstance(container, ErrorbarContainer)
            point, _, (bar,) = container.lines
            drawn.append(float(point.get_xdata()[0]))
            ends.append(float(bar.get_segments()[0][1, 0]))
        shares, errors = (
            np.concatenate([result.datasets[f"{kind}/{part}"].values[places].ravel() for kind in ("wald", "logit")])
            for part in ("coverage", "standard_error")
        )
        present = ~np.isnan(shares)
        np.testing.assert_allclose(sorted(drawn), sorted(100.0 * shares[present]), rtol=1e-12)
        np.testing.assert_allclose(sorted(ends), sorted(100.0 * (shares + 2.0 * errors)[present]), rtol=1e-12)
        texts = [text.get_text().strip() for text in axes.texts]
        assert [text for text in texts if text in ALL] == names
        assert texts.count("12 %") == len(names)  # 5 of 40 runs are flagged
    assert {text.get_text() for text in figure.legends[0].get_texts()} >= set(ESTIMATORS)


# ---------------------------------------------------------------------------------------------------------------------
# The command


def test_the_command_writes_the_file_and_the_pictures_and_prints_the_table(
    here: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ("reproduce", "coverage", "--runs", 2, "--seed", 3, "--quiet", "--folder")
    done = here(*arguments, tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["coverage.h5", "coverage.pdf", "coverage.png"]
    result = load(tmp_path / "coverage.h5")
    assert result.kind == "coverage" and (result.config["n_runs"], result.config["seed"]) == (2, 3)
    assert done.stdout.splitlines()[1:] == coverage_table(result).splitlines()


def test_the_experiment_has_ten_thousand_runs_or_what_is_asked_for() -> None:
    from mpi_ustat.app.cli import build_parser
    from mpi_ustat.app.reproduce_command import _experiments

    for words, runs in (((), 10_000), (("--quick",), 1000), (("--runs", "7"), 7)):
        (experiment,) = _experiments("coverage", build_parser().parse_args(["reproduce", "coverage", *words]))
        assert {study.n_runs for study in experiment.studies.values()} == {runs}
        seeds = {study._streams.seed for study in experiment.studies.values() if isinstance(study, Coverage)}
        assert len(seeds) == 10
