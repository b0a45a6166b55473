"""Checkpoints: what they belong to, what is refused, and runs that are killed or stopped at any moment."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import h5py
import numpy as np
import pytest
from commands import processes_left, refusal, result_of, write_csv
from conftest import Mpirun, _mpiexec, started
from numpy.typing import NDArray

from mpi_ustat import SerialComm, UserError
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.training import set_up
from mpi_ustat.mpi.fingerprint import fingerprint
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.storage.checkpoint import Claim, checkpoint, read_checkpoint
from mpi_ustat.storage.files import _digest, locked
from mpi_ustat.storage.results import Dataset, ResultFile, load, save

Array = NDArray[np.float64]

STOPPED = 75

# --- the fingerprint of the data


def points(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(23, 3)), rng.normal(size=(17, 3))


def test_the_fingerprint_does_not_depend_on_the_ranks(comm: Any) -> None:
    samples = points()
    alone = fingerprint(SerialComm(), samples)
    assert int(alone, 16) < 2**64 and len(alone) == 16
    for cut in ("even", "first", "last"):
        own = []
        for rows in samples:
            n = len(rows)
            bounds = {
                "even": block_bounds(n, comm.size).tolist(),
                "first": [0] + [n] * comm.size,
                "last": [0] * comm.size + [n],
            }[cut]
            own.append(rows[bounds[comm.rank] : bounds[comm.rank + 1]])
        assert fingerprint(comm, own) == alone
    # Neither does it depend on how the rows lie in memory.
    assert fingerprint(SerialComm(), [np.asfortranarray(rows) for rows in samples]) == alone


def test_any_change_of_one_value_changes_the_fingerprint() -> None:
    x, z = points()
    seen = {fingerprint(SerialComm(), (x, z))}
    n_changes = 0
    for k, rows in enumerate((x, z)):
        for place in np.ndindex(rows.shape):
            for change in (np.nextafter(rows[place], 9.0), -rows[place], rows[place] + 1.0, 0.0):
                changed = [x.copy(), z.copy()]
                changed[k][place] = change
                found = fingerprint(SerialComm(), changed)
                assert found != fingerprint(SerialComm(), (x, z))
                seen.add(found)
                n_changes += 1
    assert len(seen) == n_changes + 1


def test_the_order_of_rows_columns_and_samples_changes_the_fingerprint() -> None:
    x, z = points()
    others = [
        (z, x),
        (x[::-1], z),
        (x, z[[1, 0, *range(2, 17)]]),
        (x[:, ::-1], z[:, ::-1]),
        (x[:, [1, 0, 2]], z),
        (x[:-1], z),
        (x[:-1], np.concatenate([x[-1:], z])),
        (np.concatenate([x, z[:1]]), z[1:]),
        (np.concatenate([x, z]), z[:0]),
        (x.reshape(-1, 1), z.reshape(-1, 1)),
        (x, z, z[:0]),
        (np.concatenate([x, x[:1]]), z),
        (np.column_stack([x, np.zeros(23)]), np.column_stack([z, np.zeros(17)])),
    ]
    assert len({fingerprint(SerialComm(), each) for each in [(x, z), *others]}) == len(others) + 1


@pytest.mark.parametrize("change", ["two signs", "all signs of the last column", "two halves"])
def test_changes_of_several_values_do_not_cancel(change: str) -> None:
    for seed in range(200):
        x, z = points(seed)
        changed = x.copy()
        if change == "two signs":
            changed[[3, 11], -1] *= -1.0
        elif change == "two halves":  # the lowest bits of the exponents
            changed[[3, 11], -1] *= 0.5
        else:
            changed[:, -1] *= -1.0
        assert fingerprint(SerialComm(), (changed, z)) != fingerprint(SerialComm(), (x, z)), seed


# --- the file


IDENTITY = {"l2": 0.5, "seed": 3, "batch_pairs": None, "data": "00ff", "scheme": "prop-swor"}
ARRAYS = {
    "iteration": np.array(12),
    "parameters": np.array([0.1, -1 / 3, 5e-324]),
    "history/train_loss": np.array([0.5, np.nan]),
    "counters": np.array([2**62, 0, 1]),
}


def test_arrays_come_back_bit_by_bit(tmp_path: Path) -> None:
    file = tmp_path / "run.ck"
    save(file, checkpoint(IDENTITY, {**ARRAYS, "iteration": np.array(11)}))
    save(file, checkpoint(IDENTITY, ARRAYS), overwrite=True)
    found = read_checkpoint(file, dict(reversed(IDENTITY.items())), "iteration")
    assert {name: (each.dtype, each.shape, each.tobytes()) for name, each in found.items()} == {
        name: (each.dtype, each.shape, each.tobytes()) for name, each in ARRAYS.items()
    }
    assert [path.name for path in tmp_path.iterdir()] == ["run.ck"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"l2": 0.25}, "other l2 (l2 was 0.5, is 0.25)"),
        ({"batch_pairs": 5}, "other batch_pairs (batch_pairs was None, is 5)"),
        ({"seed": 4, "data": "00fe"}, "other data and seed (data was '00ff', is '00fe')"),
        ({"standardize": True}, "other standardize (standardize was None, is True)"),
    ],
)
def test_other_identities_are_refused_by_what_differs(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    file = tmp_path / "run.ck"
    save(file, checkpoint(IDENTITY, ARRAYS))
    with pytest.raises(UserError) as caught:
        read_checkpoint(file, IDENTITY | change, "iteration")
    assert told in str(caught.value)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.ck"
    save(file, checkpoint(IDENTITY, ARRAYS))
    content = file.read_bytes()
    for length in [*range(0, len(content), 97), len(content) - 1]:
        file.write_bytes(content[:length])
        with pytest.raises(UserError, match="is not an HDF5 file|is damaged or incomplete"):
            read_checkpoint(file, IDENTITY, "iteration")
        assert file.read_bytes() == content[:length]


def test_a_result_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "run.h5", ResultFile("learn", IDENTITY, {}, {"weights": Dataset(np.zeros(2))}))
    with pytest.raises(UserError, match="a result of kind 'learn', not a checkpoint"):
        read_checkpoint(tmp_path / "run.h5", IDENTITY, "iteration")
    with pytest.raises(UserError, match="there is no file"):
        read_checkpoint(tmp_path / "other.h5", IDENTITY, "iteration")


@pytest.mark.parametrize("options", [{"scheme": "rotation"}, {"move": "smaller"}, {}, {"scheme": "fixed-shuffle"}])
@pytest.mark.parametrize("every", [1, 3, None])
def test_a_descent_that_goes_on_counts_what_moves_once(comm: Any, options: dict[str, str], every: int | None) -> None:
    samples = []
    for rows in points():
        bounds = block_bounds(len(rows), comm.size)
        samples.append(rows[bounds[comm.rank] : bounds[comm.rank + 1]])
    config = LearnConfig(
        n_workers=5, batch_pairs=2, repartition_every=every, iterations=8, eval_every=4, seed=1, **options
    )

    def gone_to(*stops: int) -> dict[str, list[float]]:
        learning, state = Learning(set_up(comm, samples, config)), None
        for stop in stops:
            if state is not None:
                learning = Learning(set_up(comm, samples, config))
                learning.restore(state)
            for _ in learning.run(stop):
                pass
            state = comm.bcast(learning.snapshot())
        return {name: learning.fit().history[name].tolist() for name in ("rows_moved", "bytes_moved")}

    whole = gone_to(8)
    assert whole["rows_moved"][-1] > 0
    assert gone_to(3, 8) == gone_to(4, 6, 8) == whole


# --- whose it is

HOLDER = """
import sys
from mpi_ustat.storage.files import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_checkpoint_of_a_running_job_is_refused_and_of_a_killed_one_is_not(
    here: Here, tmp_path: Path, data: Path
) -> None:
    file = tmp_path / "run.ck"
    (tmp_path / "linked").symlink_to(tmp_path)
    options = [data, *OPTIONS, "--iterations", 4, "--checkpoint-every", 2, "--quiet", "--checkpoint"]
    assert here(*options, file).returncode == 0
    kept = file.read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        for path, how in ((file, "--resume"), (file, "--overwrite"), (tmp_path / "linked" / "run.ck", "--resume")):
            told = refusal(here(*options, path, how))
            assert f"another run (process {holder.pid} on {os.uname().nodename}) writes '{path}'" in told
        assert here(*options, tmp_path / "other.ck").returncode == 0
        holder.kill()
    (left,) = tmp_path.glob(".mpi_ustat-*")  # of the one that was killed
    assert file.read_bytes() == kept
    assert here(*options, file, "--resume").returncode == 0
    assert not left.exists()


def test_a_process_does_not_share_its_own_checkpoint(here: Here, tmp_path: Path, data: Path) -> None:
    options = [data, *OPTIONS, "--iterations", 4, "--quiet", "--checkpoint", tmp_path / "run.ck"]
    with locked(tmp_path / "run.ck"):
        for _ in range(2):
            assert "of this process" in refusal(here(*options))
    assert here(*options).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv"]


@pytest.mark.parametrize("why", ["no locks", "switched off", "another user's"])
def test_without_locks_no_run_replaces_what_another_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    file = tmp_path / "run.ck"

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    if why == "no locks":
        monkeypatch.setattr("mpi_ustat.storage.files.fcntl.lockf", fail)
    elif why == "switched off":
        monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")
    else:
        (tmp_path / f".mpi_ustat-{_digest(file)}.lock").mkdir()  # nobody can open it for writing
    content = [checkpoint(IDENTITY, {"iteration": np.array(k)}) for k in range(5)]
    with locked(file), locked(file):
        one, another = Claim(file), Claim(file)
        one.replace(content[0])
        with pytest.raises(UserError, match="another run has written"):
            another.replace(content[1])
        one.replace(content[2])
        later = Claim(file)  # goes on from there, while the first goes on too
        one.replace(content[3])
        with pytest.raises(UserError, match="another run has written"):
            later.replace(content[4])
        assert int(load(file).datasets["iteration"].values) == 3
        file.unlink()
        one.replace(content[4])
    assert int(load(file).datasets["iteration"].values) == 4


@pytest.mark.parametrize("command", ["estimate", "learn"])
@pytest.mark.parametrize("digest", [True, False])
def test_a_damaged_checkpoint_is_refused_in_a_sentence(
    alone: None, tmp_path: Path, data: Path, command: str, digest: bool, capfd: Any
) -> None:
    from mpi_ustat.app.cli import main

    file = tmp_path / "run.ck"
    own = {"estimate": ["--columns", "a", "--rounds", 2], "learn": ["--columns", "a", "--iterations", 2]}[command]
    words = [command, data, "--label", "y", "--workers", 2, *own, "--checkpoint", file, "--checkpoint-every", 1]
    arguments = [str(word) for word in (*words, "--quiet", "--seed", 1)]
    assert main(arguments) == 0
    of_rounds: list[tuple[str, Any]] = [("record/totals", 0), ("value", 0)]
    damages = of_rounds if command == "estimate" else [("velocity", 0)]
    if not digest:  # of an earlier version: what is seen is what can't be gone on from
        damages = [("multiplicities", 255), ("record/totals", None), ("sums", None), ("moved", None)]
        damages = damages if command == "estimate" else [("parameters", None), ("history/train_loss", None)]
    content = file.read_bytes()
    for name, value in damages:
        file.write_bytes(content)
        with h5py.File(file, "r+") as stored:
            if not digest:
                del stored.attrs["digest"]
            if value is None:
                del stored[name]
            else:
                stored[name][0] = value
        assert main([*arguments, "--resume"]) == 2
        told = capfd.readouterr().err
        assert told.startswith("mpi-ustat: ") and "is damaged or incomplete" in told and told.count("\n") == 1


# --- the command line


def some_rows(n_rows: int = 60) -> list[tuple[float, ...]]:
    rng = np.random.default_rng(n_rows)
    y = (rng.random(n_rows) < 0.4).astype(int)
    X = rng.normal(size=(n_rows, 3)) + y[:, None]
    return [(*row, label) for row, label in zip(X.tolist(), y.tolist(), strict=True)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "data.csv", some_rows(), "a,b,c,y")


Here = Callable[..., CompletedProcess[str]]

COMMAND = ("learn",)


OPTIONS = ["--label", "y", "--workers", 5, "--batch-pairs", 7, "--repartition-every", 3, "--standardize", "--l2", 0.01]
OPTIONS += ["--eval-every", 4, "--decay", 0.01, "--seed", 5]

RESULT = ("weights", "train_loss", "train_auc", "test_loss", "test_auc", "iterations", "column_mean", "seed")


def learnt(done: CompletedProcess[str]) -> dict[str, Any]:
    result = result_of(done)
    return {name: result[name] for name in RESULT}


def curves(file: Path) -> dict[str, bytes]:
    datasets = load(file).datasets
    names = ("iteration", "train_loss", "train_auc", "test_loss", "test_auc")
    return {name: datasets[f"history/{name}"].values.tobytes() for name in names}


def test_a_resumed_run_ends_in_the_same_bits_on_any_ranks(
    mpirun: Mpirun, here: Here, tmp_path: Path, data: Path
) -> None:
    file, whole, output = tmp_path / "run.ck", tmp_path / "whole.h5", tmp_path / "out.h5"
    expected = learnt(here(data, *OPTIONS, "--iterations", 30, "--json", "--output", whole))
    checkpointing = [data, *OPTIONS, "--checkpoint", file, "--json"]
    for n_ranks, iterations, more in ((1, 6, []), (3, 11, ["--resume"]), (2, 20, ["--resume"])):
        done = mpirun(
            n_ranks, "learn", *checkpointing, "--checkpoint-every", 4, "--iterations", iterations, *more, timeout=60
        )
        assert learnt(done) == learnt(here(data, *OPTIONS, "--iterations", iterations, "--json"))
        assert int(load(file).datasets["iteration"].values) == iterations
    for n_ranks in (4, 0):
        kept = file.read_bytes()
        # Without --checkpoint-every it is read, not written.
        options = [*checkpointing, "--iterations", 30, "--resume", "--output", output, "--overwrite"]
        assert learnt(mpirun(n_ranks, "learn", *options)) == expected
        assert curves(output) == curves(whole)
        assert file.read_bytes() == kept
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["data.csv", "out.h5", "run.ck", "whole.h5"]


def test_resuming_a_finished_run_gives_its_result_again(here: Here, tmp_path: Path, data: Path) -> None:
    options = [data, *OPTIONS, "--iterations", 10, "--checkpoint", tmp_path / "run.ck", "--checkpoint-every", 10]
    whole = learnt(here(*options, "--json", "--output", tmp_path / "whole.h5"))
    again = learnt(here(*options, "--resume", "--json", "--output", tmp_path / "again.h5"))
    assert again == whole
    assert curves(tmp_path / "again.h5") == curves(tmp_path / "whole.h5")


def test_the_drawn_seed_is_that_of_the_run_that_goes_on(here: Here, tmp_path: Path, data: Path) -> None:
    file = tmp_path / "run.ck"
    options = [data, *OPTIONS[:-2], "--json"]
    checkpointing = [*options, "--checkpoint", file]
    first = learnt(here(*checkpointing, "--checkpoint-every", 5, "--iterations", 10))
    second = learnt(here(*checkpointing, "--iterations", 20, "--resume"))
    assert second["seed"] == first["seed"]
    assert second == learnt(here(*options, "--seed", first["seed"], "--iterations", 20))


def test_a_checkpoint_to_come_is_no_error(here: Here, tmp_path: Path, data: Path) -> None:
    file = tmp_path / "run.ck"
    options = [data, *OPTIONS, "--iterations", 4, "--checkpoint", file, "--checkpoint-every", 2, "--resume"]
    done = here(*options)
    assert done.returncode == 0
    assert done.stderr == f"mpi-ustat: there is no {file} yet: starting afresh\n"
    file.unlink()
    assert here(*options, "--quiet").stderr == ""
    assert file.exists()


def test_an_existing_checkpoint_is_resumed_or_replaced_only_when_told(here: Here, tmp_path: Path, data: Path) -> None:
    file = tmp_path / "run.ck"
    options = [data, *OPTIONS, "--checkpoint", file, "--checkpoint-every", 2, "--json"]
    assert here(*options, "--iterations", 8).returncode == 0
    kept = file.read_bytes()
    # Refused before the data are looked at.
    for source in (data, tmp_path / "missing.csv"):
        done = here(source, *options[1:], "--iterations", 12)
        assert "run.ck exists: go on from it with --resume, or replace it with --overwrite" in refusal(done)
        assert file.read_bytes() == kept
    fresh = learnt(here(*options, "--iterations", 6, "--overwrite"))
    assert fresh == learnt(here(data, *OPTIONS, "--iterations", 6, "--json"))
    assert int(load(file).datasets["iteration"].values) == 6


DIFFERENCES: dict[str, tuple[list[Any], str]] = {
    "l2": (["--l2", 0.02], "other l2 (l2 was 0.01, is 0.02)"),
    "loss": (["--loss", "logistic"], "other loss (loss was 'hinge', is 'logistic')"),
    "workers": (["--workers", 4], "other n_workers (n_workers was 5, is 4)"),
    "pairs": (["--batch-pairs", "all"], "other batch_pairs (batch_pairs was 7, is None)"),
    "rounds": (["--repartition-every", "never"], "other repartition_every (repartition_every was 3, is None)"),
    "scheme": (["--scheme", "prop-swr"], "other scheme (scheme was 'prop-swor', is 'prop-swr')"),
    "shuffle": (["--shuffle", "matrix"], "other shuffle"),
    "move": (["--move", "smaller"], "other move"),
    "momentum": (["--momentum", 0.8], "other momentum (momentum was 0.9, is 0.8)"),
    "rate": (["--learning-rate", 0.1], "other learning_rate (learning_rate was 0.01, is 0.1)"),
    "decay": (["--decay", 0.02], "other decay (decay was 0.01, is 0.02)"),
    "init": (["--init", "zeros"], "other init (init was 'normal', is 'zeros')"),
    "seed": (["--seed", 6], "other seed (seed was 5, is 6)"),
    "test set": (["--test-fraction", 0.25], "other test_fraction (test_fraction was 0.2, is 0.25)"),
    "columns": (["--columns", "a,b"], "other data (data was "),
    "order of columns": (["--columns", "b,a,c"], "other data (data was "),
    "classes": (["--positive", "0"], "other data (data was "),
    "two things": (["--l2", 0.02, "--seed", 6], "other l2 and seed"),
    "fewer iterations": (["--iterations", 5], "is of iteration 6, past the last one"),
}


@pytest.fixture
def checkpointed(here: Here, tmp_path: Path, data: Path) -> list[Any]:
    """The arguments of a run that has left a checkpoint at iteration 6."""
    arguments = [data, *OPTIONS, "--iterations", 6, "--checkpoint", tmp_path / "run.ck", "--checkpoint-every", 3]
    assert here(*arguments, "--quiet").returncode == 0
    return arguments


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_other_options_are_refused_by_name(
    here: Here, tmp_path: Path, checkpointed: list[Any], difference: str
) -> None:
    options, sentence = DIFFERENCES[difference]
    kept = (tmp_path / "run.ck").read_bytes()
    iterations = [] if "--iterations" in options else ["--iterations", 9]
    told = refusal(here(*checkpointed, "--resume", *iterations, *options))
    assert sentence in told
    assert (tmp_path / "run.ck").read_bytes() == kept
    # The same without the difference goes on.
    assert here(*checkpointed, "--resume", "--iterations", 9, "--quiet").returncode == 0


def test_other_data_are_refused(mpirun: Mpirun, here: Here, tmp_path: Path, checkpointed: list[Any]) -> None:
    rows = some_rows()
    kept = (tmp_path / "run.ck").read_bytes()
    changed = [(*rows[0][:2], np.nextafter(rows[0][2], 9.0), rows[0][3]), *rows[1:]]
    for others in (changed, rows[::-1], rows[:-1], [*rows, rows[0]]):
        write_csv(tmp_path / "data.csv", others, "a,b,c,y")
        assert "other data (data was " in refusal(here(*checkpointed, "--resume"))
    told = refusal(mpirun(3, "learn", *checkpointed, "--resume"))
    assert "other data (data was " in told
    assert (tmp_path / "run.ck").read_bytes() == kept
    write_csv(tmp_path / "data.csv", rows, "a,b,c,y")
    assert here(*checkpointed, "--resume", "--quiet").returncode == 0


def test_other_blocks_as_they_lie_are_refused(here: Here, tmp_path: Path) -> None:
    rows = some_rows()
    # A cut of the file between rows of different classes: exchanged, each class still has its order, the blocks not.
    n_workers, cut = next(
        (n, c) for n in range(2, 7) for c in block_bounds(60, n)[1:-1] if rows[c - 1][3] != rows[c][3]
    )
    exchanged = [*rows[: cut - 1], rows[cut], rows[cut - 1], *rows[cut + 1 :]]
    data = write_csv(tmp_path / "data.csv", rows, "a,b,c,y")
    options = [data, "--label", "y", "--workers", n_workers, "--scheme", "as-is", "--test-fraction", 0, "--seed", 1]
    options += ["--iterations", 4, "--json"]
    checkpointing = [*options, "--checkpoint", tmp_path / "run.ck", "--checkpoint-every", 4]
    result = learnt(here(*checkpointing))
    assert here(*checkpointing, "--resume").returncode == 0
    write_csv(data, exchanged, "a,b,c,y")
    assert learnt(here(*options)) != result
    assert "belongs to a run with other data" in refusal(here(*checkpointing, "--resume"))


DAMAGES = ["half", "zero bytes", "text", "a result", "another program's file", "a later version"]


def damage(file: Path, how: str) -> None:
    import h5py

    content = file.read_bytes()
    if how == "half":
        file.write_bytes(content[: len(content) // 2])
    elif how == "zero bytes":
        file.write_bytes(b"")
    elif how == "text":
        file.write_text("weights 1 2 3\n" * 100)
    elif how == "a result":
        save(file, ResultFile("learn", {"seed": 5}, {}, {"weights": Dataset(np.zeros(2))}), overwrite=True)
    elif how == "another program's file":
        file.unlink()
        with h5py.File(file, "w") as stream:
            stream["parameters"] = np.zeros(3)
    else:
        with h5py.File(file, "r+") as stream:
            stream.attrs["format_version"] = 99


@pytest.mark.parametrize("seeded", [True, False], ids=["seeded", "unseeded"])
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_checkpoint_is_refused_and_left_alone(
    here: Here, tmp_path: Path, checkpointed: list[Any], how: str, seeded: bool
) -> None:
    file = tmp_path / "run.ck"
    damage(file, how)
    kept = file.read_bytes()
    arguments = checkpointed if seeded else [each for each in checkpointed if each not in ("--seed", 5)]
    if not seeded:
        arguments[arguments.index("--workers") + 1 : arguments.index("--workers") + 1] = [5]
        assert arguments.count(5) == 1
    told = refusal(here(*arguments, "--resume", "--iterations", 9))
    assert str(file) in told
    assert file.read_bytes() == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "run.ck"]


@pytest.mark.parametrize("how", ["half", "text"])
@pytest.mark.parametrize("seeded", [True, False], ids=["seeded", "unseeded"])
def test_several_ranks_refuse_a_damaged_checkpoint_together(
    mpirun: Mpirun, tmp_path: Path, data: Path, seeded: bool, how: str
) -> None:
    file = tmp_path / "run.ck"
    save(file, checkpoint(IDENTITY, ARRAYS))
    damage(file, how)
    kept = file.read_bytes()
    seed = ["--seed", 1] if seeded else []
    done = mpirun(3, "learn", data, "--label", "y", "--checkpoint", file, "--resume", *seed)
    assert str(file) in refusal(done)
    assert "abort" not in done.stderr.lower()  # no rank has had to be ended
    assert file.read_bytes() == kept


def test_impossible_checkpoints_are_refused_before_the_data_are_read(here: Here, tmp_path: Path) -> None:
    missing = [tmp_path / "missing.csv", "--label", "y"]
    (tmp_path / "folder").mkdir()
    for options, sentence in (
        (["--checkpoint-every", 5], "add --checkpoint F"),
        (["--resume"], "add --checkpoint F"),
        (["--checkpoint", tmp_path / "run.ck", "--checkpoint-every", 0], "checkpoints every 0 iterations"),
        (
            ["--checkpoint", tmp_path / "run.ck", "--checkpoint-every", "x"],
            "is 'x': give a whole number",
        ),
        (["--checkpoint", tmp_path / "nowhere" / "run.ck"], "does not exist"),
        (["--checkpoint", tmp_path / "nowhere" / "run.ck", "--resume"], "does not exist"),
        (["--checkpoint", tmp_path / "folder"], "is a folder"),
        (["--checkpoint", tmp_path / "folder", "--resume"], "is a folder"),
    ):
        told = refusal(here(*missing, *options))
        assert sentence in told
    assert "there is no file" in refusal(here(*missing, "--checkpoint", tmp_path / "run.ck"))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_folder_is_refused_before_the_data_are_read(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    told = refusal(here(tmp_path / "missing.csv", "--label", "y", "--checkpoint", folder / "run.ck"))
    assert "read-only" in told


def test_a_checkpoint_that_cannot_be_written_ends_the_run_and_keeps_the_last(
    here: Here, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.ck"
    written = []

    def full(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > 4:  # two for each file: its content, and the folder
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    told = refusal(here(data, *OPTIONS, "--iterations", 20, "--checkpoint", file, "--checkpoint-every", 2))
    assert "the disk is full" in told
    assert int(load(file).datasets["iteration"].values) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "run.ck"]


def test_a_descent_that_diverges_keeps_the_last_good_checkpoint(here: Here, tmp_path: Path, data: Path) -> None:
    file = tmp_path / "run.ck"
    options = ["--iterations", 500, "--l2", 1, "--learning-rate", 1e20, "--checkpoint", file, "--checkpoint-every", 1]
    done = here(data, "--label", "y", "--seed", 1, *options)
    assert done.returncode == 3
    iteration = int(done.stderr.split("diverged at iteration ")[1].split(":")[0])
    assert iteration > 1
    datasets = load(file).datasets
    assert int(datasets["iteration"].values) == iteration - 1
    assert np.isfinite(datasets["parameters"].values).all()


# --- runs that are killed or stopped


class Run:
    """`mpiexec -n N mpi-ustat learn …`, while it runs."""

    def __init__(self, n_ranks: int, marker: str, *arguments: object) -> None:
        command = [sys.executable, "-X", f"marker={marker}", "-m", "mpi_ustat", "learn", *map(str, arguments)]
        self.marker = marker
        self.launcher = started([_mpiexec() or "mpiexec", "-n", str(n_ranks), *command])

    def ranks(self) -> list[int]:
        """The process numbers of the ranks that run."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            # The launcher has these words too, but not in front.
            if words[0] == sys.executable.encode() and f"marker={self.marker}".encode() in words:
                found.append(int(folder.name))
        return found

    def signal_ranks(self, number: int) -> int:
        """Send a signal to all ranks; return how many there were."""
        ranks = self.ranks()
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(rank, number)
        return len(ranks)

    def end(self) -> CompletedProcess[str]:
        """Wait for the end, for a minute at most."""
        out, err = self.launcher.communicate(timeout=60)
        return CompletedProcess(self.launcher.args, self.launcher.returncode, out, err)


@contextmanager
def running(n_ranks: int, marker: str, *arguments: object) -> Iterator[Run]:
    run = Run(n_ranks, marker, *arguments)
    try:
        yield run
    finally:
        if run.launcher.poll() is None:
            run.signal_ranks(signal.SIGKILL)
            run.launcher.kill()
            run.launcher.communicate()


def wait_until(happened: Callable[[], bool], run: Run) -> None:
    """Wait for something that a run does; not for longer than it runs."""
    deadline = time.monotonic() + 60
    while not happened() and run.launcher.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def version(file: Path) -> tuple[int, int] | None:
    """What changes whenever the file is replaced, also by one that gets the inode of an earlier one."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


@pytest.fixture
def marker(mpirun: Mpirun, tmp_path: Path) -> str:
    """A word that tells our processes from others'; for pytest in one process, where there is /proc."""
    if not os.path.isdir("/proc/self"):
        pytest.skip("the list of processes is read from /proc")
    return f"run-of-{tmp_path.name}-{os.getpid()}"


def states(data: Path, n_iterations: int) -> list[tuple[bytes, bytes]]:
    """Parameters and velocity after each iteration of a run that nobody disturbs."""
    rows = np.loadtxt(data, delimiter=",", skiprows=1)
    x, z = (rows[rows[:, 3] == label, :3] for label in (1, 0))
    options = {"n_workers": 5, "batch_pairs": 7, "repartition_every": 3, "l2": 0.01, "decay": 0.01, "seed": 5}
    learning = Learning(
        set_up(SerialComm(), (x, z), LearnConfig(**options, iterations=n_iterations, eval_every=n_iterations))
    )
    found = [(learning.state.parameters.tobytes(), learning.state.velocity.tobytes())]
    for t in range(1, n_iterations + 1):
        for _ in learning.run(t):
            pass
        found.append((learning.state.parameters.tobytes(), learning.state.velocity.tobytes()))
    return found


@pytest.mark.parametrize(
    ("n_kills", "n_iterations"), [(6, 500), pytest.param(20, 2500, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_kills_at_any_moment_lose_nothing_that_was_saved(
    here: Here, marker: str, tmp_path: Path, data: Path, n_kills: int, n_iterations: int
) -> None:
    """Every kill interrupts the run that goes on from the one before, on another number of ranks."""
    rng = np.random.default_rng(n_kills)
    file, output = tmp_path / "run.ck", tmp_path / "out.h5"
    plain = ["--label", "y", "--workers", 5, "--batch-pairs", 7, "--repartition-every", 3, "--l2", 0.01]
    plain += ["--decay", 0.01, "--seed", 5, "--test-fraction", 0, "--eval-every", 50, "--iterations", n_iterations]
    whole = learnt(here(data, *plain, "--json", "--output", tmp_path / "whole.h5"))
    undisturbed = states(data, n_iterations)
    arguments = [
        data,
        *plain,
        "--checkpoint",
        file,
        "--checkpoint-every",
        1,
        "--resume",
        "--json",
        "--quiet",
        "--output",
        output,
    ]
    reached, n_killed = 0, 0
    for k in range(n_kills):
        before = version(file)
        with running((3, 1, 2)[k % 3], marker, *arguments) as run:
            if k == 0:
                time.sleep(rng.uniform(0.1, 0.6))  # maybe even before the first checkpoint
            else:
                wait_until(lambda before=before: version(file) != before, run)
                time.sleep(rng.uniform(0.0, 0.08))
            assert run.launcher.poll() is None, run.end()
            n_killed += run.signal_ranks(signal.SIGKILL) > 0
            done = run.end()
        assert done.returncode not in (0, STOPPED) and done.stdout.count("weights") == 0
        assert processes_left(marker) == []
        if k == 0 and version(file) is None:
            continue
        stored = load(file)
        iteration = int(stored.datasets["iteration"].values)
        assert iteration >= reached
        reached = iteration
        found = tuple(stored.datasets[name].values.tobytes() for name in ("parameters", "velocity"))
        assert found == undisturbed[iteration]
    assert n_killed == n_kills
    assert 0 < reached < n_iterations
    with running(2, marker, *arguments) as run:
        assert learnt(run.end()) == whole
    assert curves(output) == curves(tmp_path / "whole.h5")
    # What a killed rank was writing stays under its own name, beside the checkpoint, and nothing else does.
    names = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".mpi_ustat-")}
    assert names == {"data.csv", "run.ck", "whole.h5", "out.h5"}


def launcher_passes_on(number: int) -> bool:
    """MPICH's mpiexec sends SIGTERM on to the ranks; others end them."""
    from mpi4py import MPI

    return number == signal.SIGUSR1 or "MPICH" in MPI.Get_library_version()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
@pytest.mark.parametrize(("n_ranks", "to"), [(3, "mpiexec"), (2, "one rank")])
def test_a_signal_stops_after_the_iteration_with_a_checkpoint(
    here: Here, marker: str, tmp_path: Path, data: Path, n_ranks: int, to: str, number: int
) -> None:
    pytest.importorskip("mpi4py.MPI")
    if to == "mpiexec" and not launcher_passes_on(number):
        pytest.skip("this launcher does not pass the signal on")
    file, output = tmp_path / "run.ck", tmp_path / "out.h5"
    endless = [data, *OPTIONS, "--checkpoint", file, "--json", "--output", output, "--iterations", 10**6]
    # Its first checkpoint says that it is at work.
    with running(n_ranks, marker, *endless, "--checkpoint-every", 40) as run:
        wait_until(file.exists, run)
        time.sleep(0.05)
        os.kill(run.launcher.pid if to == "mpiexec" else max(run.ranks()), number)
        done = run.end()
    assert (done.returncode, done.stdout) == (STOPPED, "")
    stored = int(load(file).datasets["iteration"].values)
    told = f"mpi-ustat: stopped at iteration {stored}, checkpoint in {file}: go on with --resume"
    assert [line for line in done.stderr.splitlines() if line.startswith("mpi-ustat:")] == [told]
    assert "Traceback" not in done.stderr
    assert not output.exists()
    assert processes_left(marker) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "run.ck"]

    more = [data, *OPTIONS, "--iterations", stored + 7, "--json"]
    whole = learnt(here(*more, "--output", tmp_path / "whole.h5"))
    with running(5 - n_ranks, marker, *more, "--checkpoint", file, "--resume", "--output", output) as run:
        assert learnt(run.end()) == whole
    assert curves(output) == curves(tmp_path / "whole.h5")


def test_signals_are_left_alone_without_a_checkpoint_and_afterwards(here: Here, tmp_path: Path, data: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]
    for more in ([], ["--checkpoint", tmp_path / "run.ck"]):
        assert here(data, *OPTIONS, "--iterations", 3, "--quiet", *more).returncode == 0
        assert [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)] == before
    assert not (tmp_path / "run.ck").exists()


def test_a_stop_asked_for_in_the_last_iteration_is_an_ordinary_end(
    here: Here, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Learning.step

    def signalled(learning: Learning) -> None:
        if learning.state.iteration == 4:
            os.kill(os.getpid(), signal.SIGUSR1)
        return step(learning)

    monkeypatch.setattr(Learning, "step", signalled)
    checkpointing = [data, *OPTIONS, "--checkpoint", tmp_path / "run.ck", "--json"]
    stopped = here(*checkpointing, "--iterations", 6)
    assert (stopped.returncode, stopped.stdout) == (STOPPED, "")
    assert int(load(tmp_path / "run.ck").datasets["iteration"].values) == 5
    done = here(*checkpointing, "--iterations", 5, "--overwrite")
    assert json.loads(done.stdout)["iterations"] == 5 and done.returncode == 0
