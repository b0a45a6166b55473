"""`mpi-ustat estimate --checkpoint`: the same bits after any interruption, on any ranks, and nothing of another run."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import refusal, result_of, write_csv
from conftest import Mpirun

from mpi_ustat.app.exit_codes import STOPPED
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.answers import found_by
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import Round
from mpi_ustat.estimation.estimation import Estimation, run
from mpi_ustat.estimation.evaluation import Evaluation
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.estimation.records import Record
from mpi_ustat.estimation.round_arrays import arrays_to_rounds, rounds_to_arrays
from mpi_ustat.estimation.round_sums import sums_of
from mpi_ustat.estimation.rounds import State
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.kernel import Local, PairSum
from mpi_ustat.numerics.wholes import integers
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.schemes.variance import Spread
from mpi_ustat.storage import checkpoint, results
from mpi_ustat.storage.results import load

Here = Callable[..., CompletedProcess[str]]

COMMAND = ("estimate",)

# --- rounds as arrays


def a_round(t: int, *, components: bool = True, n_statistics: int = 1) -> Round:
    rng = np.random.default_rng(t)
    sums = [
        (PairSum(2**200 + t, 3**100), PairSum(-1 / 3, 7)),
        (PairSum(0, 0), PairSum(5e-324, 1)),
        (PairSum(-(2**64), 2), PairSum(float("nan"), 2**63)),
    ]
    found = [Evaluation(Local(each, None), weight) for each, weight in zip(sums, (3**100, 0, 2), strict=True)]
    answers = replace(found_by(AUC(columns=2), found).answers, combined=np.array([[0.1], [np.nan], [-1 / 3]]))
    return Round(
        sums=sums_of(answers),
        record=Record.of(answers),
        value=rng.normal(size=1),
        components=rng.normal(size=(3, 2, 2)) if components else None,
        sizes=(np.array([3, 0, 1]), np.array([2, 2, 2])),
        rows_moved=4 + t,
        bytes_moved=2**40,
        multiplicities=((1, 2, 3, 4), (0, 0, 0, 0), (2**70, 1, 1, 1)) if t else (),
        spread=Spread.of(rng.normal(size=(3, n_statistics))),
    )


def assert_same_round(found: Round, wanted: Round) -> None:
    def typed(sums: tuple[tuple[PairSum, ...], ...]) -> list[Any]:
        return [[(type(x.total), repr(x.total), type(x.n_pairs), x.n_pairs) for x in each] for each in sums]

    assert repr(found.sums) == repr(wanted.sums)
    pairs = [(getattr(found, name), getattr(wanted, name)) for name in ("value", "components")]
    assert (found.spread is None) == (wanted.spread is None)
    if found.spread is not None and wanted.spread is not None:
        of_spreads = zip(astuple(found.spread), astuple(wanted.spread), strict=True)
        pairs += [(np.array(a), np.array(b)) for a, b in of_spreads]
    assert (found.record is None) == (wanted.record is None)
    if found.record is not None and wanted.record is not None:
        a, b = found.record.answers, wanted.record.answers
        assert typed(a.sums) == typed(b.sums)
        pairs.append((a.values, b.values))
        for name in ("weights", "evaluations"):
            assert integers(getattr(a, name)) == integers(getattr(b, name)), name
    for a, b in pairs:
        assert (a is None) == (b is None)
        assert a is None or (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    assert np.array_equal(found.sizes, wanted.sizes)
    for name in ("rows_moved", "bytes_moved", "multiplicities"):
        assert getattr(found, name) == getattr(wanted, name), name


@pytest.mark.parametrize("known", [(True, True, True), (False, True, False), (False, False, False)])
def test_rounds_come_back_bit_by_bit(known: tuple[bool, ...]) -> None:
    for n_statistics in (1, 2):
        rounds = [a_round(t, components=each, n_statistics=n_statistics) for t, each in enumerate(known)]
        arrays = rounds_to_arrays(rounds)
        # What repeats is kept once.
        assert len(arrays["record/weights"]) == 1 and len(arrays["record/totals"]) == len(rounds)
        for found, wanted in zip(arrays_to_rounds(arrays), rounds, strict=True):
            assert_same_round(found, wanted)
        without = [replace(each, record=None) for each in rounds]
        for some, with_records in ((arrays, False), (rounds_to_arrays(without), True)):
            for found, wanted in zip(arrays_to_rounds(some, with_records=with_records), without, strict=True):
                assert_same_round(found, wanted)


# --- the command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(8)
    rows = [(*rng.normal(size=2).tolist(), int(k % 3 == 0)) for k in range(67)]
    return write_csv(tmp_path / "data.csv", rows, "a,b,y")


OPTIONS = ["--columns", "a", "--kernel", "gini", "--label", "y", "--workers", 5, "--seed", 4]

CASES: dict[str, list[Any]] = {
    "all pairs": OPTIONS,
    "sampled pairs": [*OPTIONS, "--pairs", 9, "--aggregate", "pooled"],
    "with replacement": [*OPTIONS, "--scheme", "prop-swr"],
    "rotation": [*OPTIONS, "--scheme", "rotation"],
    "all together": [*OPTIONS, "--scheme", "swor", "--workers", 9, "--empty", "skip"],
    "the smaller sample": [*OPTIONS, "--move", "smaller"],
    "a deal": [*OPTIONS, "--shuffle", "matrix", "--reference"],
    "fixed shuffle": [*OPTIONS, "--scheme", "fixed-shuffle", "--no-stderr"],
    "several scores": ["--columns", "a,b", "--label", "y", "--workers", 5, "--seed", 4, "--difference"],
    "one sample": ["--columns", "a,b", "--kernel", "kendall", "--workers", 5, "--seed", 4],
    "one sample, replaced": ["--columns", "a", "--kernel", "gini", "--workers", 5, "--seed", 4, "--scheme", "prop-swr"],
    "one sample, rotation": ["--columns", "a", "--kernel", "gini", "--workers", 9, "--seed", 4, "--scheme", "rotation"],
}


def values(file: Path) -> dict[str, bytes]:
    """All numbers of a result, but for what depends on who held which rows before: times and traffic."""
    datasets = load(file).datasets
    names = [name for name in datasets if not name.startswith("seconds/") and not name.endswith("_moved")]
    return {name: datasets[name].values.tobytes() for name in names}


@pytest.mark.parametrize("case", CASES)
def test_going_on_gives_the_bits_of_an_undisturbed_run(here: Here, tmp_path: Path, data: Path, case: str) -> None:
    options, file = [data, *CASES[case], "--quiet"], tmp_path / "run.ck"
    assert here(*options, "--rounds", 5, "--output", tmp_path / "whole.h5").returncode == 0
    checkpointing = [*options, "--checkpoint", file, "--checkpoint-every", 2, "--overwrite"]
    assert here(*checkpointing, "--rounds", 3).returncode == 0
    assert int(load(file).datasets["round"].values) == 3
    assert here(*checkpointing, "--resume", "--rounds", 5, "--output", tmp_path / "out.h5").returncode == 0
    assert values(tmp_path / "out.h5") == values(tmp_path / "whole.h5")
    assert int(load(file).datasets["round"].values) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "out.h5", "run.ck", "whole.h5"]


def killed_after(monkeypatch: pytest.MonkeyPatch, here: Here, n_checkpoints: int, *arguments: object) -> list[int]:
    """Run a command, which doesn't live to write its last checkpoint whole; return the bytes that each wrote."""
    written: list[int] = []

    def counted(write: Callable[..., None]) -> Callable[..., None]:
        def wrapped(path: Any, content: bytes, **options: Any) -> None:
            if len(written) == n_checkpoints:
                raise MemoryError("no more")
            write(path, content, **options)
            written.append(len(content))

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "append", counted(checkpoint.append))
        patch.setattr(results, "write_whole", counted(results.write_whole))
        assert here(*arguments).returncode == 2
    assert len(written) == n_checkpoints
    return written


def test_checkpoints_write_what_is_new(here: Here, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all rounds again: what is written grows as the number of rounds, not as its square."""
    file = tmp_path / "run.ck"
    options = [data, *OPTIONS, "--quiet", "--rounds", 200, "--checkpoint", file, "--checkpoint-every", 1]
    written = killed_after(monkeypatch, here, 150, *options)
    assert max(written[1:]) < written[0]
    assert max(written[100:]) < 1.1 * max(written[1:50])
    assert file.stat().st_size == sum(written)
    told = here(file, command=("info",)).stdout
    assert told.endswith("records after that, up to round 150: 149\n")


@pytest.mark.parametrize("case", ["all pairs", "one sample, rotation", "several scores"])
def test_a_file_with_records_goes_on_as_one_without(
    here: Here, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    options, file = [data, *CASES[case], "--quiet", "--rounds", 5], tmp_path / "run.ck"
    assert here(*options, "--output", tmp_path / "whole.h5").returncode == 0
    killed_after(monkeypatch, here, 3, *options, "--checkpoint", file, "--checkpoint-every", 1)
    assert here(*options, "--checkpoint", file, "--resume", "--output", tmp_path / "out.h5").returncode == 0
    assert values(tmp_path / "out.h5") == values(tmp_path / "whole.h5")


@pytest.fixture
def with_records(
    here: Here, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Any], Path, list[int]]:
    """Options of a run, its checkpoint with two records, and the bytes of each of its three parts."""
    options, file = [data, *OPTIONS, "--quiet", "--rounds", 5], tmp_path / "run.ck"
    killing = [*options, "--checkpoint", file, "--checkpoint-every", 1]
    return options, file, killed_after(monkeypatch, here, 3, *killing)


def test_what_is_cut_off_the_last_record_was_not_written(
    with_records: tuple[list[Any], Path, list[int]], here: Here, tmp_path: Path
) -> None:
    options, file, parts = with_records
    whole = file.read_bytes()
    assert here(*options, "--output", tmp_path / "whole.h5").returncode == 0
    base = len(whole) - parts[-1]
    for length in range(base, len(whole)):
        file.write_bytes(whole[:length])
        assert len(checkpoint.read_records(file)) == 1
    again = [*options, "--checkpoint", file, "--checkpoint-every", 1, "--resume", "--overwrite"]
    for length in (base, base + 1, base + parts[-1] // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert here(*again, "--output", tmp_path / "out.h5").returncode == 0
        assert values(tmp_path / "out.h5") == values(tmp_path / "whole.h5")
        assert int(load(file).datasets["round"].values) == 5
        assert checkpoint.read_records(file) == []


def test_every_flipped_byte_of_a_file_with_records_is_refused(
    with_records: tuple[list[Any], Path, list[int]], here: Here
) -> None:
    options, file, parts = with_records
    whole = file.read_bytes()
    for place in [*range(0, parts[0], 97), *range(parts[0] - 60, len(whole))]:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(UserError, match=r"run\.ck"):
            load(file)
    for command, arguments in ((COMMAND, [*options, "--checkpoint", file, "--resume"]), (("info",), [file])):
        told = refusal(here(*arguments, command=command))
        assert str(file) in told
    file.write_bytes(whole[: -parts[-1] - parts[-2]] + whole[-parts[-1] :])  # a record that belongs behind another
    with pytest.raises(UserError, match=r"run\.ck"):
        load(file)


def test_ranks_go_on_from_what_other_ranks_have_left(mpirun: Mpirun, here: Here, tmp_path: Path, data: Path) -> None:
    file = tmp_path / "run.ck"
    assert here(data, *OPTIONS, "--rounds", 6, "--quiet", "--output", tmp_path / "whole.h5").returncode == 0
    for n_ranks, rounds in ((3, 4), (2, 6)):
        more = [
            "--checkpoint",
            file,
            "--checkpoint-every",
            2,
            "--resume",
            "--output",
            tmp_path / "out.h5",
            "--overwrite",
        ]
        done = mpirun(n_ranks, "estimate", data, *OPTIONS, "--rounds", rounds, *more, "--json")
        assert done.returncode == 0, done.stderr
        assert int(load(file).datasets["round"].values) == rounds
    assert values(tmp_path / "out.h5") == values(tmp_path / "whole.h5")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_stops_after_the_round_with_a_checkpoint(
    here: Here, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file, output = tmp_path / "run.ck", tmp_path / "out.h5"
    options = [data, *OPTIONS, "--rounds", 6, "--checkpoint", file, "--output", output, "--json"]
    whole = result_of(here(data, *OPTIONS, "--rounds", 6, "--json"))
    step = Estimation.step

    def signalled(estimation: Estimation) -> Round:
        if len(estimation.state.rounds) == 3:
            os.kill(os.getpid(), number)
        return step(estimation)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(Estimation, "step", signalled)
        done = here(*options)
    assert (done.returncode, done.stdout) == (STOPPED, "")
    assert done.stderr == f"mpi-ustat: stopped at round 4, checkpoint in {file}: go on with --resume\n"
    assert signal.getsignal(number) is before
    assert not output.exists()

    again = result_of(here(*options, "--resume"))
    for each in (again, whole):
        del each["seconds"]
    assert again == whole
    assert int(load(file).datasets["round"].values) == 4  # without --checkpoint-every it is read, not written


def test_the_drawn_seed_is_that_of_the_run_that_goes_on(here: Here, tmp_path: Path, data: Path) -> None:
    options = [data, *OPTIONS[:-2], "--json"]
    checkpointing = [*options, "--checkpoint", tmp_path / "run.ck", "--checkpoint-every", 1]
    first = result_of(here(*checkpointing, "--rounds", 2))
    second = result_of(here(*checkpointing, "--rounds", 4, "--resume"))
    assert second["seed"] == first["seed"]
    assert second["per_round"] == result_of(here(*options, "--rounds", 4, "--seed", first["seed"]))["per_round"]


@pytest.fixture
def checkpointed(here: Here, tmp_path: Path, data: Path) -> list[Any]:
    """The arguments of a run that has left a checkpoint at round 3."""
    arguments = [data, *OPTIONS, "--rounds", 3, "--checkpoint", tmp_path / "run.ck", "--checkpoint-every", 3]
    assert here(*arguments, "--quiet").returncode == 0
    return arguments


DIFFERENCES: dict[str, tuple[list[Any], str]] = {
    "kernel": (["--kernel", "product"], "other kernel (kernel was 'gini', is 'product')"),
    "workers": (["--workers", 6], "other n_workers (n_workers was 5, is 6)"),
    "pairs": (["--pairs", 3], "other n_pairs (n_pairs was None, is 3)"),
    "scheme": (["--scheme", "swor"], "scheme"),
    "aggregate": (["--aggregate", "pooled"], "other aggregate (aggregate was 'mean', is 'pooled')"),
    "move": (["--move", "smaller"], "other move (move was 'both', is 'smaller')"),
    "shuffle": (["--shuffle", "matrix"], "other shuffle"),
    "components": (["--no-stderr"], "other stderr (stderr was True, is False)"),
    "seed": (["--seed", 5], "other seed (seed was 4, is 5)"),
    "column": (["--columns", "b"], "other data (data was "),
    "classes": (["--positive", "0"], "other data (data was "),
    "fewer rounds": (["--rounds", 2], "is of round 3, past the last one: ask for at least 3 rounds"),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_other_options_are_refused_by_name(
    here: Here, tmp_path: Path, checkpointed: list[Any], difference: str
) -> None:
    options, sentence = DIFFERENCES[difference]
    kept = (tmp_path / "run.ck").read_bytes()
    assert sentence in refusal(here(*checkpointed, "--resume", *options))
    assert (tmp_path / "run.ck").read_bytes() == kept


def test_what_no_round_depends_on_may_change(here: Here, checkpointed: list[Any]) -> None:
    more = ["--rounds", 4, "--confidence", 0.9, "--interval", "wald", "--reference", "--quiet"]
    assert here(*checkpointed, "--resume", *more).returncode == 0


def test_other_data_and_other_checkpoints_are_refused(here: Here, tmp_path: Path, checkpointed: list[Any]) -> None:
    text = (tmp_path / "data.csv").read_text()
    (tmp_path / "data.csv").write_text(text.replace("-1.7", "-1.8", 1))
    assert "other data (data was " in refusal(here(*checkpointed, "--resume"))
    (tmp_path / "data.csv").write_text(text)
    told = refusal(here(*checkpointed))
    assert "run.ck exists: go on from it with --resume, or replace it with --overwrite" in told
    (tmp_path / "text").write_text(text)
    assert "is not an HDF5 file" in refusal(here(*checkpointed, "--checkpoint", tmp_path / "text", "--resume"))
    assert "--checkpoint, which is for rounds" in refusal(here(*checkpointed, "--overwrite", "--complete"))


def test_a_descents_checkpoint_is_refused(here: Here, alone: None, tmp_path: Path, data: Path) -> None:
    from mpi_ustat.app.cli import main

    words = ["learn", data, "--label", "y", "--iterations", 2, "--checkpoint", tmp_path / "run.ck"]
    assert main([*map(str, words), "--checkpoint-every", "1", "--quiet"]) == 0
    told = refusal(here(data, *OPTIONS, "--checkpoint", tmp_path / "run.ck", "--resume"))
    assert "is a checkpoint of another command" in told


def test_a_kernel_whose_code_changed_is_refused_by_name(
    here: Here, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(power: int) -> None:
        sys.modules.pop("checkpointed_kernel", None)
        (tmp_path / "checkpointed_kernel.py").write_text(f"def h(x, y):\n    return abs(x - y.T) ** {power}\n")
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write(1)
    arguments = [data, *OPTIONS, "--kernel", "checkpointed_kernel:h", "--checkpoint", tmp_path / "run.ck"]
    assert here(*arguments, "--checkpoint-every", 1, "--quiet").returncode == 0
    write(2)
    assert "belongs to a run with other code of the kernel (" in refusal(here(*arguments, "--resume", "--rounds", 2))
    write(1)
    assert here(*arguments, "--resume", "--rounds", 2, "--quiet").returncode == 0


# --- what has moved

MOVES: dict[str, tuple[int, dict[str, Any]]] = {
    "rotation": (2, {"kernel": "auc", "scheme": "rotation"}),
    "rotation of one sample": (1, {"kernel": "gini", "scheme": "rotation"}),
    "rotation of three": (3, {"kernel": "vus", "scheme": "rotation"}),
    "the smaller sample": (2, {"kernel": "auc", "move": "smaller"}),
    "both": (2, {"kernel": "auc"}),
    "a deal": (2, {"kernel": "auc", "scheme": "fixed-shuffle"}),
}


@pytest.mark.parametrize("case", MOVES)
def test_a_run_that_goes_on_counts_what_moves_once(comm: Any, case: str) -> None:
    """Also on more ranks than have workers, of which some move nothing."""
    n_samples, options = MOVES[case]
    rng = np.random.default_rng(3)
    samples = []
    for n_rows in (60, 30, 24)[:n_samples]:
        rows, bounds = rng.normal(size=n_rows), block_bounds(n_rows, comm.size)
        samples.append(rows[bounds[comm.rank] : bounds[comm.rank + 1]])
    for n_workers in (3, 5):
        config = EstimateConfig(n_workers=n_workers, n_rounds=2, seed=1, **options)
        whole = Estimation(set_up(comm, samples, config))
        assert len(list(run(whole))) == 2
        later = Estimation(set_up(comm, samples, config))
        later.state = State(whole.state.rounds[:1])
        assert len(list(run(later))) == 1
        assert_same_round(later.state.rounds[1], whole.state.rounds[1])
        assert later.state.rounds[1].rows_moved > 0
