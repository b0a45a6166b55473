"""The options of a run: what is refused, and that JSON keeps them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import EMPTY, SHUFFLES, EstimateConfig, LearnConfig
from mpi_ustat.schemes.registry import SCHEMES


def config(**options: Any) -> EstimateConfig:
    return EstimateConfig(**{"n_workers": 4, "seed": 1, **options})


@st.composite
def configs(draw: st.DrawFn) -> EstimateConfig:
    scheme = draw(st.sampled_from(list(SCHEMES)))
    return EstimateConfig(
        kernel=draw(st.sampled_from(["auc", "gini", "my.module:kernel", "größe:größer"])),
        ties=draw(st.sampled_from(["half", "strict"])),
        complete=draw(st.booleans()),
        scheme=scheme,
        n_workers=draw(st.integers(1, 10**6)),
        n_rounds=1 if scheme == "as-is" else draw(st.integers(1, 10**6)),
        n_pairs=draw(st.none() | st.integers(1, 10**12)),
        aggregate=draw(st.sampled_from(["mean", "pooled"])),
        empty=draw(st.sampled_from(EMPTY)),
        move=draw(st.sampled_from(["both", "smaller"])) if scheme == "prop-swor" else "both",
        shuffle=draw(st.sampled_from(SHUFFLES)),
        seed=draw(st.integers(0, 2**63 - 1)),
        reference=draw(st.booleans()),
        tile=draw(st.integers(1, 10**6)),
    )


@given(configs())
def test_json_keeps_every_option(original: EstimateConfig) -> None:
    again = EstimateConfig(**json.loads(json.dumps(original.to_json())))
    assert again == original
    assert again.to_json().keys() == {field.name for field in dataclasses.fields(EstimateConfig)}


def test_the_defaults_are_the_main_scheme_of_the_paper() -> None:
    default = config()
    assert (default.kernel, default.ties, default.scheme, default.aggregate) == ("auc", "half", "prop-swor", "mean")
    assert (default.n_rounds, default.n_pairs, default.complete, default.reference) == (1, None, False, False)
    assert (default.empty, default.move, default.shuffle) == ("refuse", "both", "auto")


def test_workers_without_pairs_are_refused_by_default_except_where_chance_makes_them() -> None:
    assert {scheme: config(scheme=scheme).empty for scheme in SCHEMES} == {
        scheme: "skip" if scheme == "swor" else "refuse" for scheme in SCHEMES
    }
    assert config(scheme="swor", empty="zero").empty == "zero"


@pytest.mark.parametrize("option", ["n_workers", "seed"])
def test_workers_and_seed_must_be_given(option: str) -> None:
    options = {"n_workers": 4, "seed": 1}
    del options[option]
    with pytest.raises(TypeError, match=option):
        EstimateConfig(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel", ["auc", "vus"])
def test_ties_may_be_among_the_options_of_the_kernel_but_not_contradict_them(kernel: str) -> None:
    other = {"auc": "strict", "vus": "shared"}[kernel]  # than the default
    among = {"kernel": kernel, "kernel_options": {"ties": other}, "n_workers": 2, "seed": 0}
    assert EstimateConfig(**among).ties == other
    assert EstimateConfig(**among, ties=other) == EstimateConfig(**among)
    with pytest.raises(UserError, match=f"^ties is 'half', and '{other}' among the kernel's options: give one of them"):
        EstimateConfig(**among, ties="half")


def test_options_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().n_rounds = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("ties", "lax", ["half", "strict"]),
        ("scheme", "prop-swap", ["prop-swor", "as-is"]),
        ("aggregate", "median", ["mean", "pooled"]),
        ("empty", "ignore", ["refuse", "skip"]),
        ("move", "larger", ["both", "smaller"]),
        ("shuffle", "riffle", ["auto", "permutation", "matrix"]),
    ],
)
def test_an_unknown_choice_is_refused_naming_option_value_and_choices(
    option: str, value: str, allowed: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        config(**{option: value})
    assert all(word in str(caught.value) for word in (option, repr(value), *allowed))


@pytest.mark.parametrize(
    ("option", "name", "least"),
    [
        ("n_workers", "number of workers", 1),
        ("n_rounds", "number of rounds", 1),
        ("n_pairs", "number of pairs per worker", 1),
        ("seed", "seed", 0),
        ("tile", "tile side", 1),
    ],
)
def test_a_number_that_is_too_small_or_not_whole_is_refused(option: str, name: str, least: int) -> None:
    assert getattr(config(**{option: least}), option) == least
    for value in (least - 1, least + 0.5, float(least), str(least), True):
        with pytest.raises(UserError) as caught:
            config(**{option: value})
        assert str(caught.value) == f"the {name} is {value!r}: give a whole number of at least {least}"


@pytest.mark.parametrize("option", ["n_workers", "n_rounds", "seed", "tile"])
def test_a_number_cannot_be_left_open(option: str) -> None:
    with pytest.raises(UserError, match="is None: give a whole number"):
        config(**{option: None})


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("n_rounds", "number of rounds"),
        ("n_pairs", "number of pairs per worker"),
        ("seed", "seed"),
        ("tile", "tile side"),
        ("n_workers", "number of workers"),
    ],
)
def test_a_number_beyond_63_bits_is_refused(option: str, name: str) -> None:
    if option != "n_workers":
        assert getattr(config(**{option: 2**63 - 1}), option) == 2**63 - 1
    for large in (2**63, 10**30):
        with pytest.raises(UserError, match=f"the {name} is {large}: give one below 2\\^63"):
            config(**{option: large})


def test_more_workers_than_can_be_kept_account_of_are_refused() -> None:
    assert config(n_workers=2**24).n_workers == 2**24
    for make in (config, lambda **options: LearnConfig(seed=0, **options)):
        with pytest.raises(UserError, match="the number of workers is 16777217: give at most 16777216"):
            make(n_workers=2**24 + 1)


@pytest.mark.parametrize("option", ["iterations", "eval_every", "batch_pairs", "repartition_every"])
def test_numbers_of_a_descent_have_a_limit(option: str) -> None:
    with pytest.raises(UserError, match=f"is {2**63}: give one below 2\\^63"):
        LearnConfig(n_workers=1, seed=0, **{option: 2**63})


def test_rounds_of_as_is_are_refused() -> None:
    assert config(scheme="as-is", n_rounds=1).n_rounds == 1
    with pytest.raises(UserError, match="as-is has one partition only"):
        config(scheme="as-is", n_rounds=2)


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "prop-swor"])
def test_moving_the_smaller_sample_alone_is_refused_where_all_move(scheme: str) -> None:
    assert config(move="smaller").move == "smaller"
    with pytest.raises(UserError, match=f"the scheme {scheme} moves all samples"):
        config(scheme=scheme, move="smaller")
