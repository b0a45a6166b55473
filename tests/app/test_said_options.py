"""The options that say something about the rows, on the command line: read in any format, shown, written, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import h5py
import numpy as np
import pytest
from commands import refusal, result_of, write_csv
from conftest import Mpirun
from numpy.testing import assert_allclose

from mpi_ustat import SerialComm, estimate
from mpi_ustat.storage.results import load

Here = Callable[..., CompletedProcess[str]]

RNG = np.random.default_rng(3)
N = 90
LABELS = (RNG.random(N) < 0.45).astype(int)
SCORES = np.round(RNG.normal(size=(N, 2)) + LABELS[:, None], 2)
WEIGHTS, COUNTS = np.round(RNG.exponential(size=N), 3), RNG.integers(0, 3, N)
CLUSTERS, SITES = RNG.integers(0, 30, N), np.array([f"site {k}" for k in RNG.integers(0, 4, N)])
HEADER = "a,b,y,w,k,patient,site"
COMMON = ("--label", "y", "--columns", "a", "--complete", "--seed", "1")


def columns() -> list[Any]:
    return [SCORES[:, 0], SCORES[:, 1], LABELS, WEIGHTS, COUNTS, CLUSTERS, SITES]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "rows.csv", list(zip(*(each.tolist() for each in columns()), strict=True)), HEADER)


def halves(values: Any) -> tuple[Any, Any]:
    return values[LABELS == 1], values[LABELS == 0]


SAID: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "weights": (("--weights", "w"), {"weights": halves(WEIGHTS)}),
    "counts": (("--counts", "k"), {"counts": halves(COUNTS)}),
    "numbers": (("--cluster", "patient"), {"clusters": halves(CLUSTERS)}),
    "text": (("--cluster", "site"), {"clusters": halves(SITES)}),
    "strata": (("--strata", "site", "--weights", "3"), {"strata": halves(SITES), "weights": halves(WEIGHTS)}),
    "groups": (
        ("--group", "patient", "--group-weight", "pairs"),
        {"groups": halves(CLUSTERS), "group_weight": "pairs"},
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_what_columns_say_is_what_the_library_is_told(mpirun: Mpirun, data: Path, name: str) -> None:
    options, said = SAID[name]
    found = result_of(mpirun(3, "estimate", data, *COMMON, *options, "--json"))
    want = estimate(SerialComm(), *halves(SCORES[:, 0]), complete=True, **said)
    assert (found["estimate"], found["stderr"], tuple(found["interval"])) == (want.value, want.stderr, want.interval)
    assert len(found["flags"]) == len(want.flags)


def test_columns_that_say_something_are_no_data(here: Here, tmp_path: Path) -> None:
    rows = list(zip(SCORES[:, 0].tolist(), LABELS.tolist(), WEIGHTS.tolist(), strict=True))
    path = write_csv(tmp_path / "three.csv", rows, "score,y,w")
    found = result_of(here("estimate", path, "--label", "y", "--complete", "--weights", "w", "--json"))
    assert (
        found["estimate"] == estimate(SerialComm(), *halves(SCORES[:, 0]), complete=True, weights=halves(WEIGHTS)).value
    )


def test_other_formats_say_the_same(here: Here, data: Path, tmp_path: Path) -> None:
    wanted = result_of(here("estimate", data, *COMMON, "--weights", "w", "--cluster", "site", "--json"))
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        for name, values in zip(HEADER.split(","), columns(), strict=True):
            file[name] = values if name != "site" else values.astype("S")
    found = result_of(here("estimate", path, *COMMON, "--weights", "w", "--cluster", "site", "--json"))
    assert (found["estimate"], found["stderr"]) == (wanted["estimate"], wanted["stderr"])


@pytest.mark.parametrize("words", [("--group", "site"), ("--strata", "site"), ("--cluster", "site", "--weights", "w")])
def test_parts_of_a_file_say_what_the_whole_does(
    here: Here, data: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    header, *rows = data.read_text().splitlines(keepends=True)
    for k in range(3):
        (tmp_path / f"part-{k}.csv").write_text(header + "".join(rows[30 * k : 30 * k + 30]))
    whole, parts = (
        result_of(here("estimate", path, *COMMON, *words, "--json")) for path in (data, tmp_path / "part-*")
    )
    assert [whole[name] for name in ("estimate", "stderr")] == [parts[name] for name in ("estimate", "stderr")]


def test_two_files_say_it_for_each_sample(here: Here, tmp_path: Path) -> None:
    paths = []
    for name, wanted in (("x", 1), ("z", 0)):
        chosen = wanted == LABELS
        rows = list(zip(SCORES[chosen, 0].tolist(), WEIGHTS[chosen].tolist(), SITES[chosen].tolist(), strict=True))
        paths += [f"--{name}", write_csv(tmp_path / f"{name}.csv", rows, "a,w,site")]
    found = result_of(
        here("estimate", *paths, "--columns", "a", "--complete", "--weights", "w", "--strata", "site", "--json")
    )
    said = {"weights": halves(WEIGHTS), "strata": halves(SITES)}
    assert found["estimate"] == estimate(SerialComm(), *halves(SCORES[:, 0]), complete=True, **said).value


def test_counts_are_rows_repeated_in_rounds_too(mpirun: Mpirun, data: Path, tmp_path: Path) -> None:
    options = (
        "--label",
        "y",
        "--columns",
        "a",
        "--workers",
        "4",
        "--scheme",
        "as-is",
        "--empty",
        "skip",
        "--seed",
        "2",
    )
    found = result_of(mpirun(2, "estimate", data, *options, "--counts", "k", "--json"))
    # As the shards lie: each worker has the copies of its own rows.
    values = []
    for block in np.array_split(np.arange(N), 4):
        x, z = (np.repeat(SCORES[b, 0], COUNTS[b]) for b in (block[LABELS[block] == k] for k in (1, 0)))
        values.append(((z < x[:, None]) + 0.5 * (z == x[:, None])).mean())
    assert_allclose(found["estimate"], np.mean(values), rtol=1e-14)


def test_influence_groups_and_tests_are_in_the_file(mpirun: Mpirun, data: Path, tmp_path: Path) -> None:
    both = ("--label", "y", "--columns", "a,b", "--complete", "--seed", "1", "--difference", "--margin", "0.1")
    output = tmp_path / "influence.h5"
    done = mpirun(3, "estimate", data, *both, "--cluster", "site", "--influence", "--output", output)
    assert done.returncode == 0 and "that it is at most -0.1: z = " in done.stdout and "test " in done.stdout
    stored = load(output)
    want = estimate(
        SerialComm(), *halves(SCORES), complete=True, columns=("a", "b"), clusters=halves(SITES), influence=True
    )
    assert want.analysis is not None
    for name, psi in zip(("x", "z"), want.analysis.influence, strict=True):
        assert stored.datasets[f"influence/{name}"].values.tobytes() == np.ascontiguousarray(psi.T).tobytes()
    tests = want.tests(0.5)
    assert_allclose(stored.datasets["test/p"].values, [each.p for each in tests if each is not None])
    assert stored.config["data"]["said"] == {"clusters": "site"}
    assert stored.config["differences"][0]["test"]["null"] == -0.1

    output = tmp_path / "groups.h5"
    assert mpirun(2, "estimate", data, *COMMON, "--group", "site", "--output", output).returncode == 0
    stored = load(output)
    assert stored.scales["group"].tolist() == [f"site {k}" for k in range(4)]
    for k, value in enumerate(stored.datasets["groups/value"].values.tolist()):
        x, z = (scores[sites == f"site {k}"] for scores, sites in zip(halves(SCORES[:, 0]), halves(SITES), strict=True))
        assert_allclose(value, ((z < x[:, None]) + 0.5 * (z == x[:, None])).mean(), rtol=1e-14)
    shown = mpirun(1, "info", output)
    assert shown.returncode == 0 and "site" in shown.stdout


def test_concordance_of_several_risks(mpirun: Mpirun, tmp_path: Path) -> None:
    times, events = np.round(RNG.exponential(size=60) + 0.01, 2), RNG.integers(0, 2, 60)
    risks = np.round(RNG.normal(size=(60, 2)) - times[:, None], 1)
    rows = np.column_stack([times, events, risks])
    path = write_csv(tmp_path / "times.csv", rows.tolist(), "time,event,one,other")
    options = ("--kernel", "concordance", "--columns", "time,event,one,other", "--complete", "--difference", "--json")
    found = result_of(mpirun(3, "estimate", path, *options))
    want = estimate(SerialComm(), rows, kernel="concordance", complete=True, columns=("one", "other"))
    assert found["columns"] == ["one", "other"] and found["estimate"] == want.values.tolist()
    assert found["stderr"] == list(want.stderr)  # type: ignore[arg-type]
    assert found["differences"][0]["statistic"] == " - ".join(found["columns"][:2])
    assert found["differences"][0]["test"]["p"] == next(want.differences()).test.p  # type: ignore[union-attr]


REFUSED = {
    "rounds": (("--weights", "w", "--rounds", "1"), "use --complete"),
    "no numbers": (("--weights", "site", "--complete"), "column 'site' has 'site"),
    "no column": (("--cluster", "patients", "--complete"), "no column 'patients'"),
    "group weight": (("--group-weight", "one", "--complete"), "give --group COL"),
    "influence": (("--influence", "--complete"), "give --output"),
    "groups and clusters": (("--group", "patient", "--cluster", "patient", "--complete"), "leave these out"),
    "margin": (("--margin", "0.1", "--complete"), "give --difference too"),
    "null": (("--null", "nan", "--complete"), "give a finite value"),
    "half counts": (("--counts", "w", "--complete"), "counts must be whole numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_told_in_one_sentence(here: Here, data: Path, name: str) -> None:
    options, message = REFUSED[name]
    assert message in refusal(here("estimate", data, "--label", "y", "--columns", "a", *options))


CENSORED = ("--kernel", "concordance", "--columns", "t,e,r", "--complete")
OF_CLASSES = ("--label", "y", "--columns", "r", "--complete")
ROWS: dict[str, list[Any]] = {
    "y": [k % 2 for k in range(24)],
    "t": [0.5 + k / 4 for k in range(24)],
    "e": [k % 3 % 2 for k in range(24)],
    "r": [k * 7 % 24 for k in range(24)],
    "w": [1.0] * 24,
    "g": ["a", "a", "b", "b"] * 6,
}
ALONE = [f"s{k}" for k in range(24)]


def at_17(column: str, value: Any) -> dict[str, list[Any]]:
    return {column: [value if k == 17 else each for k, each in enumerate(ROWS[column])]}


def missing(role: str) -> str:
    return f"the {role} 'g' is missing: remove the row or fill in the {role}"


FAULTS: dict[str, tuple[dict[str, list[Any]], tuple[str, ...], str]] = {
    # Row 17 of all is the ninth of the class '1'.
    "negative weight": (at_17("w", -1), (*OF_CLASSES, "--weights", "w"), ": column 'w' holds -1, and"),
    "infinite weight": (at_17("w", np.inf), (*CENSORED, "--weights", "w"), ": column 'w' holds inf, and"),
    "NaN weight": (at_17("w", np.nan), (*OF_CLASSES, "--weights", "w"), "column 'w' is NaN"),
    "no weight": ({"w": [0.0] * 24}, (*CENSORED, "--weights", "w"), "all weights of the sample x are 0"),
    "no weight of a class": ({"w": [0, 1] * 12}, (*OF_CLASSES, "--weights", "w"), "of the class '0' are 0"),
    # The first of three ranks meets a half of the class '0', a single one the negative count of the class '1'.
    "counts": (
        {"w": [1.0] * 4 + [0.5] + [1.0] * 16 + [-1.0] + [1.0] * 2},
        (*OF_CLASSES, "--counts", "w"),
        ": column 'w' holds 0.5, and counts must be whole numbers from 0 on: give other weights as --weights",
    ),
    "cluster": (at_17("g", ""), (*OF_CLASSES, "--cluster", "g"), missing("cluster")),
    "stratum": (at_17("g", ""), (*OF_CLASSES, "--strata", "g"), missing("stratum")),
    "group": (at_17("g", ""), (*OF_CLASSES, "--group", "g"), missing("group")),
    "NaN cluster": ({"g": [*range(23), np.nan]}, (*OF_CLASSES, "--cluster", "g"), missing("cluster")),
    "event": (
        at_17("e", 2),
        CENSORED,
        "row 17 of the sample x, counted from 0, holds an event that is neither 0 nor 1",
    ),
    "time": (at_17("t", 0.0), CENSORED, "row 17 of the sample x, counted from 0, holds a time that is not positive"),
    "no event": ({"e": [0] * 24}, CENSORED, "no pair is comparable"),
    "horizon": ({}, (*CENSORED, "--horizon", "0.1"), "no pair is comparable"),
    "single strata": ({"g": ALONE}, (*CENSORED, "--strata", "g"), "no pair of points counts"),
    "single groups": ({"g": ALONE}, (*OF_CLASSES, "--group", "g"), "none of the 24 groups has a pair"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_columns_are_told_in_the_same_words_by_any_ranks(
    here: Here, mpirun: Mpirun, tmp_path: Path, name: str
) -> None:
    faults, options, message = FAULTS[name]
    rows = ROWS | faults
    text = write_csv(tmp_path / "rows.csv", list(zip(*rows.values(), strict=True)), ",".join(rows))
    arrays = tmp_path / "rows.h5"
    with h5py.File(arrays, "w") as file:
        for column, values in rows.items():
            file[column] = np.array(values).astype("S") if isinstance(values[0], str) else values
    for path in (text, arrays):
        told = refusal(here("estimate", path, *options))
        assert message in told
        if message.startswith(":"):  # of one cell
            row = next(
                k
                for k, (a, b) in enumerate(zip(rows["w"], ROWS["w"], strict=True))
                if a != b and a in (-1, 0.5, np.inf)
            )
            assert (f"line {row + 2}:" if path == text else f"row {row} (counted from 0):") in told
        assert refusal(mpirun(3, "estimate", path, *options)) == told


def test_an_empty_cell_is_told_with_its_line(here: Here, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "cells.csv", [(1.0, 1, "a"), (2.0, 0, ""), (3.0, 1, "b")], "score,y,site")
    told = refusal(here("estimate", path, "--label", "y", "--columns", "score", "--complete", "--strata", "site"))
    assert "site" in told or "strata" in told
    json.dumps(told)
