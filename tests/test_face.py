"""The library's face: it speaks Python, and the command line says the same in flags."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

import mpi_ustat
from mpi_ustat import SerialComm, estimate, estimate_samples, learn, learn_samples, plan, plan_samples
from mpi_ustat.app.options_as_flags import as_flags, in_flags
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import EstimateConfig, LearnConfig
from mpi_ustat.planning.plan import choose

COMMAND = ()
Here = Callable[..., CompletedProcess[str]]
SERIAL = SerialComm()

PACKAGE = Path(mpi_ustat.__file__).parent

# Everything that a program calls, and not the commands, their files, or what belongs to mpiexec.
LIBRARY = (
    "estimation",
    "learning",
    "planning",
    "testing",
    "complete",
    "kernels",
    "schemes",
    "inference",
    "points",
    "user",
    "mpi",
    "storage",
)
OF_OTHERS = {"--mpi4py", "--mpi-lib-version", "--mpi", "--no-cache", "--status"}


def test_no_sentence_of_the_library_names_a_flag_of_the_command_line() -> None:
    found = [
        (path.name, node.lineno, flag)
        for room in LIBRARY
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", node.value)
        if flag not in OF_OTHERS
    ]
    assert not found


@pytest.mark.parametrize(
    ("python", "flags"),
    [
        ("use at most 3 workers (n_workers=)", "use at most 3 workers (--workers)"),
        ("ask for fewer n_rounds= or n_workers=", "ask for fewer --rounds or --workers"),
        ("ask for fewer iterations=, or a larger eval_every=", "ask for fewer --iterations, or a larger --eval-every"),
        ("ask for fewer batch_pairs=", "ask for fewer --batch-pairs"),
        ('choose empty="skip" or "zero"', "choose --empty skip or zero"),
        ('(scheme="prop-swor", aggregate="mean"), whose', "(--scheme prop-swor --aggregate mean), whose"),
        ('use complete=True, or scheme="prop-swor"', "use --complete, or --scheme prop-swor"),
        ('use move="smaller" with prop-swor', "use --move smaller with prop-swor"),
        ("choose fewer columns, or stderr=False", "choose fewer columns, or --no-stderr"),
        ("sample some of them (n_pairs=), or", "sample some of them (--pairs), or"),
        (
            "the kernel auc is for 2 samples, not 1: two are x and z, one is x alone, several go to estimate_samples",
            "the kernel auc is for 2 samples, not 1: two come out of a file with --label, one without, several with "
            "--classes",
        ),
        (
            "has several data columns: choose with columns= among s, y",
            "has several data columns: choose with --columns among s, y",
        ),
        ("not 'cow': give one of them to positive=", "not 'cow': give one of them to --positive"),
        ('give decimal="comma", or write', "give --decimal comma, or write"),
        ("choose another name or give overwrite=True", "choose another name or give --overwrite"),
        ("or start afresh without resume=True", "or start afresh without --resume"),
        # What is no option, or a text of the user's, stays.
        ("the file 'scheme=swor/complete=True.csv' has n=3", "the file 'scheme=swor/complete=True.csv' has n=3"),
        (
            "data/complete=True/seed=1/x.csv: seed=7, my_tile=True",
            "data/complete=True/seed=1/x.csv: seed=7, my_tile=True",
        ),
        ("the column 'complete=True' has no numbers", "the column 'complete=True' has no numbers"),
    ],
)
def test_options_become_flags_and_nothing_else_does(python: str, flags: str) -> None:
    assert in_flags(python) == flags


def test_options_become_words_of_a_command_line() -> None:
    options = {"complete": True, "stderr": False, "n_workers": 7, "scheme": "as-is", "batch_pairs": 3}
    assert as_flags(options) == [
        "--complete",
        "--no-stderr",
        "--workers",
        "7",
        "--scheme",
        "as-is",
        "--batch-pairs",
        "3",
    ]


# ---------------------------------------------------------------------------------------------------------------------
# One style of calling

CALLS: dict[Callable[..., Any], type] = {
    estimate: EstimateConfig,
    estimate_samples: EstimateConfig,
    learn: LearnConfig,
    learn_samples: LearnConfig,
    plan: EstimateConfig,
    plan_samples: EstimateConfig,
}
by_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)


def options_of(call: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of a function and their defaults."""
    parameters = inspect.signature(call).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


def samples(*sizes: int, d: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(sizes)
    return [rng.normal(size=(size, d)[: 1 + (d > 1)]) + k for k, size in enumerate(sizes)]


@by_call
def test_a_misspelt_option_is_an_error_of_python_that_names_the_function(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=rf"^{call.__name__}\(\) got an unexpected keyword argument 'n_worker'"):
        call(SERIAL, samples(9, 9), n_worker=3)


@by_call
def test_options_are_those_of_the_configuration_with_its_defaults(call: Callable[..., Any]) -> None:
    given, kinds = options_of(call), {each.kind for each in inspect.signature(call).parameters.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    config = {each.name: each.default for each in fields(CALLS[call]) if each.default is not MISSING}
    assert {name for name in config if name not in given} <= {"kernel", "objective"} or call in (plan, plan_samples)
    open_until_it_runs = {"n_workers", "seed", "kernel_options"}
    if call in (estimate, estimate_samples):  # given, they ask for rounds, whatever they are
        open_until_it_runs |= {"complete", "n_rounds", "scheme", "move", "shuffle"}
    assert all(given[name] in (None, "") for name in open_until_it_runs & set(given))
    assert {name: given[name] for name in config if name in given and name not in open_until_it_runs} == {
        name: value for name, value in config.items() if name in given and name not in open_until_it_runs
    }


@pytest.mark.parametrize("call", [estimate, learn], ids=lambda call: call.__name__)
def test_every_option_is_explained(call: Callable[..., Any]) -> None:
    listed = inspect.getdoc(call).partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    names = [
        name for names in re.findall(r"^([a-z]\w*(?:, \w+)*) : \S", listed, re.MULTILINE) for name in names.split(", ")
    ]
    assert sorted(names) == sorted(inspect.signature(call).parameters)


APART = ("x_test", "z_test", "x_validation", "z_validation")
"""Points of two samples that no step sees."""


@pytest.mark.parametrize(
    ("of_x_and_z", "of_samples", "of_each"),
    [
        (estimate, estimate_samples, ("multiclass",)),
        (learn, learn_samples, (*APART, "tests", "validation", "pairings")),
        (plan, plan_samples, ()),
    ],
    ids=["estimate", "learn", "plan"],
)
def test_functions_of_two_and_of_many_samples_have_the_same_options(
    of_x_and_z: Callable[..., Any], of_samples: Callable[..., Any], of_each: tuple[str, ...]
) -> None:
    one, other = (
        {name: default for name, default in options_of(call).items() if name not in of_each}
        for call in (of_x_and_z, of_samples)
    )
    assert one == other


ASKED: dict[str, dict[str, Any]] = {
    "rounds": {"n_workers": 3, "n_rounds": 2, "n_pairs": 5, "distinct": True, "scheme": "swor", "shuffle": "auto",
               "aggregate": "pooled", "empty": "zero", "seed": 7, "stderr": False, "per_worker": False},
    "how": {"n_workers": 2, "move": "smaller", "shuffle": "matrix", "ties": "strict", "seed": 8, "confidence": 0.9,
            "interval": "wald", "tile": 99, "reference": True},
    "complete": {"complete": True, "kernel_options": {"ties": "strict"}, "seed": 9},
}  # fmt: skip


@pytest.mark.parametrize("asked", ASKED)
def test_every_option_of_an_estimate_arrives(asked: str) -> None:
    x, z = samples(20, 15, d=1)
    found = estimate(SERIAL, x, z, "auc", **ASKED[asked])
    assert {name: getattr(found.config, name) for name in ASKED[asked]} == ASKED[asked]
    again = estimate_samples(SERIAL, (x, z), kernel="auc", **ASKED[asked])
    assert again.config == found.config
    assert again.value == found.value
    said = {"weights", "counts", "clusters", "strata", "groups", "group_weight", "influence"}
    every = {name for options in ASKED.values() for name in options} | {"columns", "block_sizes"} | said
    assert every == set(options_of(estimate))


def test_every_option_of_a_descent_arrives() -> None:
    options = {
        "loss": "logistic", "l2": 0.1, "learning_rate": 0.2, "decay": 0.3, "momentum": 0.4, "batch_pairs": 5,
        "iterations": 6, "init": "zeros", "n_workers": 2, "repartition_every": 3, "scheme": "prop-swor",
        "move": "smaller", "shuffle": "matrix", "empty": "skip", "seed": 4, "eval_every": 2, "monitor_pairs": 50,
        "early_stopping": 2, "keep": "last",
    }  # fmt: skip
    of_scores = {"exchange", "batch_points", "optimizer", "tolerance", "weights", "groups"}
    assert {*options, *APART} | of_scores == set(options_of(learn))
    x, z, *apart = samples(12, 11, 5, 4, 6, 3)
    found = learn(SERIAL, x, z, **dict(zip(APART, apart, strict=True)), **options)
    assert {name: getattr(found.config, name) for name in options} == options
    again = learn_samples(SERIAL, (x, z), tests=apart[:2], validation=apart[2:], **options)
    assert again.config == found.config
    np.testing.assert_array_equal(again.parameters, found.parameters)
    np.testing.assert_array_equal(again.history["test_loss"], found.history["test_loss"])


def test_every_option_of_a_descent_whose_scores_travel_arrives() -> None:
    x, z = samples(12, 11)
    drawn = {"exchange": "scores", "batch_points": 3, "iterations": 4, "seed": 1}
    optimum = {
        "exchange": "scores",
        "batch_points": None,
        "optimizer": "lbfgs",
        "tolerance": 1e-3,
        "l2": 0.1,
        "seed": 1,
    }
    said = {"weights": [np.arange(1.0, 13.0), np.arange(11.0)], "groups": [np.arange(12) % 2, np.arange(11) % 2]}
    for options, more in (
        (drawn, {}),
        (optimum, {"loss": "squared-hinge"}),
        (optimum, {"loss": "squared-hinge", **said}),
    ):
        found, again = learn(SERIAL, x, z, **options, **more), learn_samples(SERIAL, (x, z), **options, **more)
        assert {name: getattr(found.config, name) for name in options} == options
        np.testing.assert_array_equal(again.parameters, found.parameters)
    plain = learn(SERIAL, x, z, **optimum, loss="squared-hinge")
    assert np.abs(found.parameters - plain.parameters).max() > 1e-3


def test_a_plan_is_called_as_an_estimate_is_and_gives_its_options() -> None:
    x, z = samples(60, 50, d=1)
    options = {"n_workers": 4, "aggregate": "pooled", "ties": "strict", "seed": 3, "tile": 50}
    found = plan(SERIAL, x, z, "auc", target_stderr=1.0, **options)
    many = plan_samples(SERIAL, (x, z), "auc", budget_seconds=100.0, kernel_options={"ties": "strict"}, **options)
    expected = choose(SERIAL, (x, z), EstimateConfig(kernel="auc", **options))
    for each in (found, many):
        np.testing.assert_array_equal(each.components, expected.components)
        assert {str(choice.options()) for choice in each.choices} == {str(c.options()) for c in expected.choices}
        assert each.n_workers == 4
    assert found.recommended is not None
    taken = estimate(SERIAL, x, z, n_workers=4, ties="strict", seed=3, **found.recommended.options())
    assert taken.config.complete == (found.recommended.scheme == "complete")
    with pytest.raises(UserError, match="leave one of them out"):
        plan(SERIAL, x, z, target_stderr=1.0, budget_seconds=1.0)
    assert plan(SERIAL, np.abs(x), None, "gini", n_workers=2).sizes == (60,)


def test_a_second_sample_is_given_on_all_ranks_or_none(comm: Any) -> None:
    x, z = samples(20, 15, d=1)
    for call in (estimate, plan):
        if comm.size == 1:
            assert call(comm, x, z, n_workers=2, seed=1).sizes == (20, 15)
        else:
            with pytest.raises(UserError, match="a second sample is given on some ranks only"):
                call(comm, x, z if comm.rank else None, n_workers=2, seed=1)


# ---------------------------------------------------------------------------------------------------------------------
# Names and types


def test_what_is_extended_is_at_the_top_level() -> None:
    from mpi_ustat.kernels.kernel import Kernel
    from mpi_ustat.learning.losses.loss import Loss
    from mpi_ustat.learning.objectives import PairObjective
    from mpi_ustat.schemes.scheme import Scheme

    found = (mpi_ustat.Kernel, mpi_ustat.Scheme, mpi_ustat.Loss, mpi_ustat.PairObjective)
    assert found == (Kernel, Scheme, Loss, PairObjective)
    assert mpi_ustat.plan is plan
    everything = set(mpi_ustat.__all__)
    assert everything <= set(mpi_ustat._HOME) | {"__version__"}
    assert set(mpi_ustat._HOME) - everything == {"PairwiseRanker"}
    assert all(getattr(mpi_ustat, name).__name__ == name for name in everything - {"__version__"})


def test_a_value_is_a_number_or_an_array_and_values_is_an_array() -> None:
    hints = typing.get_type_hints(mpi_ustat.Estimate)
    assert hints["value"] == float | np.typing.NDArray[np.float64]
    x, z = samples(20, 15)
    one, two = estimate(SERIAL, x[:, 0], z[:, 0], seed=1), estimate(SERIAL, x, z, columns=("a", "b"), seed=1)
    assert type(one.value) is float
    assert isinstance(two.value, np.ndarray)
    wins = np.mean(x[:, None] > z, axis=(0, 1))
    np.testing.assert_allclose(one.values, wins[:1], rtol=1e-15)
    np.testing.assert_allclose(two.values, wins, rtol=1e-15)
    assert type(one.stderr) is float
    assert [len(two.stderr), len(two.interval), len(one.interval)] == [2, 2, 2]


# ---------------------------------------------------------------------------------------------------------------------
# What print shows


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--rounds", "2", "--workers", "3", "--reference"], {"n_rounds": 2, "n_workers": 3, "reference": True}),
        (["--complete", "--ties", "strict"], {"complete": True, "ties": "strict"}),
        (["--pairs", "7", "--no-stderr", "--workers", "2"], {"n_pairs": 7, "stderr": False, "n_workers": 2}),
        (
            ["--scheme", "swor", "--empty", "zero", "--workers", "9", "--kernel", "product"],
            {"scheme": "swor", "empty": "zero", "n_workers": 9, "kernel": "product"},
        ),
    ],
    ids=["rounds", "complete", "pairs", "zero"],
)
def test_print_shows_an_estimate_as_the_command_line_does(
    here: Here, tmp_path: Path, words: list[str], options: dict[str, Any]
) -> None:
    x, z = (np.round(each, 3) for each in samples(12, 11, d=1))
    for name, values in (("x", x), ("z", z)):
        (tmp_path / f"{name}.csv").write_text(
            "s\n" + "".join(f"{value!r}\n" for value in values.tolist()), encoding="utf-8"
        )
    files = "--x", tmp_path / "x.csv", "--z", tmp_path / "z.csv"
    done = here("estimate", *files, "--columns", "s", "--seed", 5, *words)
    *rows, seconds = done.stdout.splitlines()
    assert seconds.startswith("seconds ")
    found = estimate(SERIAL, x, z, seed=5, **options)
    assert in_flags(str(found)).splitlines() == rows
    assert str(found).startswith(f"estimate          {found.value!r}")


def test_a_representation_is_one_line() -> None:
    x, z = samples(20, 15)
    one = estimate(SERIAL, x[:, 0], z[:, 0], n_workers=2, seed=1)
    assert repr(one) == (
        f"Estimate(value={one.value!r}, stderr={one.stderr!r}, interval={one.interval!r}, kernel='auc', "
        "sizes=(20, 15), n_workers=2, n_rounds=1)"
    )
    many = estimate(SERIAL, *samples(20, 15, d=300), columns=["c"] * 300, complete=True, seed=1)
    assert "\n" not in repr(many)
    assert len(repr(many)) < 1200
    fit = learn(SERIAL, x, z, n_workers=2, iterations=3, eval_every=2, seed=1)
    found = plan(SERIAL, x[:, 0], z[:, 0], n_workers=2, seed=1)
    for each, name in ((fit, "Fit("), (found, "Plan(")):
        assert repr(each).startswith(name)
        assert "\n" not in repr(each)


def test_print_shows_a_fit_and_a_plan_as_tables() -> None:
    x, z = samples(20, 15)
    fit = learn(SERIAL, x, z, n_workers=2, iterations=3, eval_every=2, seed=1)
    rows = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in str(fit).splitlines())
    assert rows["points"] == "n = 20, m = 15 for training"
    assert rows["train loss"] == f"{fit.history['train_loss'][-1]:.6g}"
    assert rows["parameters"] == " ".join(f"{each:.6g}" for each in fit.parameters)
    found = plan(SERIAL, x[:, 0], z[:, 0], n_workers=2, seed=1)
    assert found.recommended is not None
    assert str(found).count("<- recommended") == 1
    assert str(found).splitlines()[-1].startswith("estimate(…, ")
    none = plan(SERIAL, x[:, 0], z[:, 0], n_workers=2, seed=1, target_stderr=1e-9)
    assert str(none).splitlines()[-1] == "No way is quick, or exact, enough."
