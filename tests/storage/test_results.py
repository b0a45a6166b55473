"""Result files: what goes in comes out, nothing is half written, nothing else is taken for one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, BinaryIO

import h5py
import numpy as np
import pytest
from commands import refusal
from numpy.typing import NDArray

from mpi_ustat.app.info_command import describe
from mpi_ustat.errors import UserError
from mpi_ustat.storage import files
from mpi_ustat.storage.checkpoint import checkpoint, read_checkpoint
from mpi_ustat.storage.files import check_target
from mpi_ustat.storage.provenance import _git_commit, provenance
from mpi_ustat.storage.results import Dataset, ResultFile, load, save

Here = Callable[..., CompletedProcess[str]]


def example() -> ResultFile:
    return ResultFile(
        kind="estimate",
        config={"kernel": "auc", "n_pairs": None, "seed": 2**70, "data": {"x": "é.h5"}, "grid": [1, 2.5]},
        provenance={"command": "mpi-ustat estimate", "wall_seconds": 1.5, "n_ranks": 4, "bare": True},
        datasets={
            "estimate": Dataset(np.array(0.1 + 0.2), unit="1", description="mean over rounds and workers"),
            "n_pairs": Dataset(np.array(1200)),
            "per_worker/value": Dataset(np.array([[0.5, np.nan, 1.0], [0.1, 0.2, 0.3]]), ("round", "worker")),
            "per_round/bytes_moved": Dataset(np.array([0, 800_000]), ("round",), "bytes"),
            "per_round/note": Dataset(np.array(["first", "zweite Runde ü"]), ("round",)),
            "seconds/exchange": Dataset(np.array(0.25), unit="s"),
            "flags": Dataset(np.array([True, False])),
            "none": Dataset(np.zeros((0, 2))),
        },
        scales={"round": np.arange(2), "worker": np.array([10, 11, 12])},
    )


def assert_same(first: ResultFile, second: ResultFile) -> None:
    assert (first.kind, first.config, first.provenance) == (second.kind, second.config, second.provenance)
    assert first.datasets.keys() == second.datasets.keys()
    for name, dataset in first.datasets.items():
        other = second.datasets[name]
        np.testing.assert_array_equal(dataset.values, other.values)
        assert dataset.values.dtype == other.values.dtype
        assert dataset.values.shape == other.values.shape
        assert (dataset.dims, dataset.unit, dataset.description) == (other.dims, other.unit, other.description)
    assert first.scales.keys() == second.scales.keys()
    for name, values in first.scales.items():
        np.testing.assert_array_equal(values, second.scales[name])


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save(tmp_path / "r.h5", example())
    assert_same(example(), load(tmp_path / "r.h5"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.h5"]


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    save(tmp_path / "r.h5", example())
    (tmp_path / "plain").touch()
    assert (tmp_path / "r.h5").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_file_explains_itself_to_plain_h5py(tmp_path: Path) -> None:
    save(tmp_path / "r.h5", example())
    with h5py.File(tmp_path / "r.h5") as file:
        assert file.attrs["format"] == "mpi_ustat"
        assert file.attrs["format_version"] == 2
        assert json.loads(file.attrs["config"])["data"]["x"] == "é.h5"
        values = file["per_worker/value"]
        assert [dim.label for dim in values.dims] == ["round", "worker"]
        assert values.dims[1][0].name == "/worker"
        np.testing.assert_array_equal(values.dims[1][0][()], [10, 11, 12])
        assert file["round"].is_scale
        assert file["seconds/exchange"].attrs["unit"] == "s"


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        save(tmp_path / name, example())
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_large_arrays_are_compressed_without_loss(tmp_path: Path) -> None:
    values = np.repeat(np.linspace(0, 1, 1000), 300)
    save(tmp_path / "r.h5", ResultFile("learn", datasets={"w": Dataset(values)}))
    assert (tmp_path / "r.h5").stat().st_size < values.nbytes / 10
    np.testing.assert_array_equal(load(tmp_path / "r.h5").datasets["w"].values, values)


def test_numpy_scalars_and_huge_integers_are_accepted(tmp_path: Path) -> None:
    result = ResultFile(
        "learn", {"n": np.int64(3), "at": np.arange(2), "file": Path("a")}, {"p": np.int32(2), "s": 2**90}
    )
    save(tmp_path / "r.h5", result)
    loaded = load(tmp_path / "r.h5")
    assert loaded.config == {"n": 3, "at": [0, 1], "file": "a"}
    assert loaded.provenance == {"p": 2, "s": str(2**90)}


def test_an_existing_file_is_replaced_only_when_told(tmp_path: Path) -> None:
    target = tmp_path / "r.h5"
    target.write_text("precious")
    with pytest.raises(UserError, match=r"exists: .*overwrite=True"):
        save(target, example())
    assert target.read_text() == "precious"
    save(target, example(), overwrite=True)
    assert load(target).kind == "estimate"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    target = tmp_path / "r.h5"
    sync = files._sync

    def write_while_another_does(file: BinaryIO) -> None:
        sync(file)
        target.write_text("the other one's")

    monkeypatch.setattr(files, "_sync", write_while_another_does)
    if not links:
        monkeypatch.setattr(os, "link", fails_with(errno.EPERM))
    with pytest.raises(UserError, match="exists"):
        save(target, example())
    assert target.read_text() == "the other one's"
    assert len(list(tmp_path.iterdir())) == 1


def test_file_systems_without_hard_links_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", fails_with(errno.EOPNOTSUPP))
    save(tmp_path / "r.h5", example())
    assert_same(example(), load(tmp_path / "r.h5"))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize(
    ("call", "number", "message"),
    [
        ("fsync", errno.ENOSPC, "disk is full"),
        ("fsync", errno.EIO, "cannot be written"),
        ("open", errno.EROFS, "read-only"),
        ("open", errno.EACCES, "read-only"),
    ],
)
def test_a_failed_write_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool, call: str, number: int, message: str
) -> None:
    target = tmp_path / "r.h5"
    if overwrite:
        target.write_text("as before")
    monkeypatch.setattr(os, call, fails_with(number))
    with pytest.raises(UserError, match=message):
        save(target, example(), overwrite=overwrite)
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == (["r.h5"] if overwrite else [])
    assert not overwrite or target.read_text() == "as before"


@pytest.mark.parametrize(("call", "overwrite"), [("replace", True), ("link", False)])
def test_an_interrupt_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, overwrite: bool
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, call, interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "r.h5", example(), overwrite=overwrite)
    assert not list(tmp_path.iterdir())


def test_targets_are_checked_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_target(tmp_path / "new.h5", overwrite=False)
    with pytest.raises(UserError, match="does not exist: create"):
        check_target(tmp_path / "nowhere" / "r.h5", overwrite=False)
    with pytest.raises(UserError, match="is a folder"):
        check_target(tmp_path, overwrite=True)
    with pytest.raises(UserError, match="cannot be written"):
        check_target(tmp_path / ("x" * 300), overwrite=False)
    with pytest.raises(UserError, match="not a regular file"):
        check_target(os.devnull, overwrite=True)
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match="exists"):
        check_target(tmp_path / "dangling", overwrite=False)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match="read-only"):
        check_target(tmp_path / "new.h5", overwrite=False)
    assert [entry.name for entry in tmp_path.iterdir()] == ["dangling"]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (ResultFile("e", provenance={"config": "x"}), "must not use"),
        (ResultFile("e", provenance={"hosts": ["a"]}), "must be text"),
        (ResultFile("e", config={"rate": float("nan")}), "JSON"),
        (ResultFile("e", config={"kernel": object()}), "JSON"),
        (ResultFile("e", datasets={"a": Dataset(np.array([None, 1]))}), "dtype object"),
        (ResultFile("e", datasets={"a//b": Dataset(np.zeros(1))}), "name of a dataset"),
        (ResultFile("e", datasets={"scales/a": Dataset(np.zeros(1))}), "name of a dataset"),
        (ResultFile("e", datasets={"a": Dataset(np.zeros((2, 3)), ("round",))}), "2 dimensions and 1 name "),
        (ResultFile("e", datasets={"a": Dataset(np.zeros(3), ("round",))}, scales={"round": np.arange(2)}), "length"),
        (ResultFile("e", scales={"round": np.zeros((2, 2))}), "one dimension"),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, result: ResultFile, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        save(tmp_path / "r.h5", result)
    assert not list(tmp_path.iterdir())


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file"):
        load(tmp_path / "missing.h5")
    with pytest.raises(UserError, match="is a folder"):
        load(tmp_path)
    for content in (b"", b"n,value\n1,0.5\n"):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(UserError, match="not an HDF5 file"):
            load(tmp_path / "other")
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["x"] = np.arange(3)
    with pytest.raises(UserError, match="not written by mpi_ustat"):
        load(tmp_path / "foreign.h5")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    save(tmp_path / "r.h5", example())
    content = (tmp_path / "r.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError, match="damaged or incomplete"):
        load(tmp_path / "cut.h5")


def test_later_formats_and_missing_parts_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "r.h5", example())
    with h5py.File(tmp_path / "r.h5", "a") as file:
        file.attrs["format_version"] = 3
    with pytest.raises(UserError, match="later version"):
        load(tmp_path / "r.h5")
    with h5py.File(tmp_path / "r.h5", "a") as file:
        file.attrs["format_version"] = 2
        del file.attrs["config"]
    with pytest.raises(UserError, match="damaged"):
        load(tmp_path / "r.h5")


# --- files that are not as they were written


@pytest.mark.parametrize("kind", ["result", "checkpoint"])
def test_every_flipped_bit_is_refused(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "r.h5"
    if kind == "result":
        save(file, example())
    else:
        save(file, checkpoint({"seed": 3}, {"round": np.array(2), "exact": np.arange(30, dtype=np.uint8)}))
    content = file.read_bytes()
    # All of the beginning and the end, and many between: HDF5 itself sees few, and crashes on some.
    places = [*range(100), *range(100, len(content) - 60, 23), *range(len(content) - 60, len(content))]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 8)
        file.write_bytes(changed)
        with pytest.raises(UserError, match="is damaged or incomplete"):
            load(file)


CHANGES: dict[str, Callable[[h5py.File], object]] = {
    "a value": lambda file: file["estimate"].__setitem__((), 0.31),
    "one bit of a value": lambda file: file["estimate"].__setitem__((), np.nextafter(0.1 + 0.2, 1)),
    "a sign": lambda file: file["per_worker/value"].__setitem__((1, 0), -0.1),
    "a text": lambda file: file["per_round/note"].__setitem__(0, "last"),
    "a scale": lambda file: file["round"].__setitem__(1, 7),
    "options": lambda file: file.attrs.modify("config", "{}"),
    "provenance": lambda file: file.attrs.modify("n_ranks", 5),
    "provenance, added": lambda file: file.attrs.create("note", "mine"),
    "provenance, removed": lambda file: file.attrs.__delitem__("n_ranks"),
    "kind": lambda file: file.attrs.modify("kind", "learn"),
    "unit": lambda file: file["estimate"].attrs.modify("unit", "2"),
    "description": lambda file: file["estimate"].attrs.__delitem__("description"),
    "a dimension": lambda file: setattr(file["per_worker/value"].dims[0], "label", "worker"),
    "a name": lambda file: file.move("n_pairs", "n_tuples"),
    "a shape": lambda file: replaced(file, "per_round/bytes_moved", np.array([[0, 800_000]])),
    "a type": lambda file: replaced(file, "n_pairs", np.array(1200, dtype=np.int32)),
    "a dataset more": lambda file: file.create_dataset("more", data=1),
    "a dataset less": lambda file: file.__delitem__("flags"),
    "digest": lambda file: file.attrs.modify("digest", "0" * 32),
    "digest of another type": lambda file: file.attrs.create("digest", np.arange(3)),
}


def replaced(file: h5py.File, name: str, values: NDArray[Any]) -> None:
    del file[name]
    file[name] = values


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_content_is_refused(tmp_path: Path, change: str) -> None:
    save(tmp_path / "r.h5", example())
    with h5py.File(tmp_path / "r.h5", "r+") as file:
        CHANGES[change](file)
    with pytest.raises(UserError, match="is damaged or incomplete"):
        load(tmp_path / "r.h5")


def test_the_same_content_is_read_however_it_is_laid_out(tmp_path: Path) -> None:
    save(tmp_path / "r.h5", example())
    with h5py.File(tmp_path / "r.h5", "r+"):
        pass  # closed anew, which cuts off what follows HDF5's end
    assert_same(load(tmp_path / "r.h5"), example())
    with h5py.File(tmp_path / "r.h5") as file, h5py.File(tmp_path / "copy.h5", "w", libver="latest") as copy:
        for name in file:
            file.copy(name, copy)
        for name, value in file.attrs.items():
            copy.attrs[name] = value
    assert_same(load(tmp_path / "copy.h5"), example())
    with h5py.File(tmp_path / "copy.h5", "r+") as copy:
        del copy.attrs["digest"]  # as earlier versions wrote them
        copy["estimate"][()] = 0.4
    assert load(tmp_path / "copy.h5").datasets["estimate"].values == 0.4


@pytest.mark.parametrize("values", [np.array([1 + 2j]), np.float16([1]), np.array([b"a"]), np.longdouble([1]) / 3,
                                    np.zeros((3, 0)), np.array("ü"), np.arange(3, dtype=">f8"), np.arange(6)[::2],
                                    np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array([True])])  # fmt: skip
def test_any_type_of_numbers_comes_back(tmp_path: Path, values: NDArray[Any]) -> None:
    save(tmp_path / "r.h5", ResultFile("learn", datasets={"w": Dataset(values)}))
    found = load(tmp_path / "r.h5").datasets["w"].values
    np.testing.assert_array_equal(found, values)
    assert (found.dtype, found.shape) == (values.dtype, values.shape)


def huge(file: h5py.File) -> None:
    file.create_dataset("more", shape=(10**12,), dtype="f8", chunks=(10**6,))


def wide_attribute(file: h5py.File) -> None:
    file.attrs.create("claims", np.zeros(4000))


CRAFTED: dict[str, Callable[[h5py.File], object]] = {
    "more rows than there are": huge,
    "rows never written": lambda file: file.create_dataset("more", shape=(10**6,), dtype="f8"),
    "an attribute that is an array": wide_attribute,
    "a dangling link": lambda file: file.__setitem__("gone", h5py.SoftLink("/nowhere")),
    "a link elsewhere": lambda file: file.__setitem__("gone", h5py.ExternalLink("other.h5", "/x")),
    "a group in itself": lambda file: file["per_round"].__setitem__("again", file["per_round"]),
    "the root in a group": lambda file: file["per_round"].__setitem__("again", file["/"]),
    "references": lambda file: file.create_dataset("more", data=file.ref, dtype=h5py.ref_dtype),
    "a record": lambda file: file.create_dataset("more", data=np.zeros(2, dtype=[("a", "f8"), ("b", "i4")])),
    "nothing": lambda file: file.create_dataset("more", data=h5py.Empty("f8")),
    "a type": lambda file: file.__setitem__("more", np.dtype("f8")),
    "options without names": lambda file: file.attrs.modify("config", "[]"),
    "options of text": lambda file: file.attrs.modify("config", '"auc"'),
    "options of nothing": lambda file: file.attrs.modify("config", "null"),
    "options that are no JSON": lambda file: file.attrs.modify("config", "{'kernel'"),
    "options as a number": lambda file: file.attrs.create("config", 3.5),
    "deep options": lambda file: file.attrs.modify("config", '{"a":' * 5000 + "1" + "}" * 5000),
    "a version that is none": lambda file: file.attrs.create("format_version", "one"),
    "a kind that is none": lambda file: file.attrs.create("kind", np.arange(2)),
    "dimensions of numbers": lambda file: file["estimate"].attrs.create("DIMENSION_LABELS", np.arange(2)),
    "no digest, no kind": lambda file: file.attrs.__delitem__("kind"),
}


@pytest.mark.parametrize("what", CRAFTED)
def test_crafted_files_are_refused_in_a_sentence(tmp_path: Path, what: str) -> None:
    save(tmp_path / "r.h5", example())
    with h5py.File(tmp_path / "r.h5", "r+") as file:
        del file.attrs["digest"]
        CRAFTED[what](file)
    with pytest.raises(UserError, match="is damaged or incomplete"):
        load(tmp_path / "r.h5")


WRONG: dict[str, dict[str, Any]] = {
    "columns": {"datasets": {"estimate": Dataset(np.array([0.1, 0.2]))}, "config": {"columns": 5}},
    "fewer columns": {"datasets": {"estimate": Dataset(np.array([0.1, 0.2]))}, "config": {"columns": ["a"]}},
    "a text": {"datasets": {"estimate": Dataset(np.array("high"))}},
    "texts of workers": {
        "datasets": {"estimate": Dataset(np.array(0.5)), "per_worker/value": Dataset(np.array(["a"]))}
    },
    "a matrix": {"datasets": {"estimate": Dataset(np.zeros((2, 2)))}, "config": {"columns": ["a"]}},
}


@pytest.mark.parametrize("command", ["info", "plot"])
@pytest.mark.parametrize("wrong", WRONG)
def test_results_of_other_things_than_ours_are_refused_in_a_sentence(
    here: Here, tmp_path: Path, command: str, wrong: str
) -> None:
    save(tmp_path / "r.h5", ResultFile("estimate", **WRONG[wrong]))
    done = here(command, tmp_path / "r.h5")
    assert done.returncode in ((0, 2) if command == "plot" and "columns" not in wrong else (2,))
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == (done.returncode == 2)


@pytest.mark.parametrize(
    "kind", ["estimate", "learn", "plan", "scaling", "tradeoff", "coverage", "fig1", "fig3", "fig4"]
)
@pytest.mark.parametrize("config", [{}, {"n_workers": "many", "panels": 3, "models": [1], "n_rounds": 10**12}])
def test_pictures_of_nothing_are_refused_in_a_sentence(
    here: Here, tmp_path: Path, kind: str, config: dict[str, Any]
) -> None:
    save(tmp_path / "r.h5", ResultFile(kind, config, {}, {"worker": Dataset(np.array([[[10**12]]]))}))
    refusal(here("plot", tmp_path / "r.h5"))
    assert [path.name for path in tmp_path.iterdir()] == ["r.h5"]
    assert here("info", tmp_path / "r.h5").returncode == 0


def test_nothing_in_a_file_steers_the_terminal(here: Here, tmp_path: Path) -> None:
    evil = "\x1b]0;title\x07\x1b[2J\x9b1m\u202e\n\rkind: learn"
    result = ResultFile(
        evil,
        {evil: evil, "columns": [evil, "b"], "deep": {evil: [evil]}},
        {"command": evil, f"x{evil}": 1},
        {f"n{evil}": Dataset(np.array([1.0]), (f"d{evil}",), evil, evil)},
    )
    for kind in (evil, "estimate", "tradeoff", "checkpoint"):
        save(tmp_path / "r.h5", replace(result, kind=kind), overwrite=True)
        for words in (("info",), ("plot", "--overwrite")):
            done = here(*words, tmp_path / "r.h5")
            said = done.stdout + done.stderr
            assert all(c.isprintable() or c == "\n" for c in said), said
        assert here("info", tmp_path / "r.h5").returncode == 0
    with pytest.raises(UserError) as caught:
        read_checkpoint(tmp_path / "r.h5", {"seed": 1}, "round")
    assert "\x1b" not in str(caught.value)


def test_provenance_tells_the_run_and_hides_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "node17")
    argv = ["/opt/env/bin/mpi-ustat", "estimate", "--x=/home/ann/my x.h5:score,/tmp/z.csv", "/data/q.npz", "a/b.h5"]
    library = "Open MPI v4.1.4, package: Open MPI root@builder Distribution, ident: 4.1.4\0"
    numbers = {"n_ranks": 3, "n_workers": 8, "seed": 5}
    found = provenance(argv, started=0.0, wall_seconds=2, mpi_library=library, numbers=numbers)
    assert found["command"] == "mpi-ustat estimate '--x=my x.h5:score,z.csv' q.npz a/b.h5"
    assert found["mpi_library"] == "Open MPI v4.1.4"
    assert found["started"] == "1970-01-01T00:00:00+00:00"
    assert (found["n_ranks"], found["n_workers"], found["seed"], found["wall_seconds"]) == (3, 8, 5, 2.0)
    assert {"version", "python_version", "numpy_version", "h5py_version"} <= found.keys()
    assert "node17" not in str(found)
    assert "/" not in str(found).replace("a/b.h5", "")
    save(tmp_path / "r.h5", ResultFile("estimate", provenance=dict(found)))
    assert load(tmp_path / "r.h5").provenance == found


def test_provenance_survives_file_names_that_are_not_text(tmp_path: Path) -> None:
    found = provenance(["x", "a\udcff.h5"], started=0.0, wall_seconds=0)
    save(tmp_path / "r.h5", ResultFile("estimate", {"file": "a\udcff.h5"}, dict(found)))
    assert load(tmp_path / "r.h5").config == {"file": "a\udcff.h5"}


def test_the_commit_is_read_without_git(tmp_path: Path) -> None:
    commit, other = "0123456789" * 4, "ab" * 20
    assert _git_commit(tmp_path) is None
    git = tmp_path / "main" / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/trunk\n")
    assert _git_commit(tmp_path / "main") is None  # nothing committed yet
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{other} refs/heads/x\n{commit} refs/heads/trunk\n")
    assert _git_commit(tmp_path / "main") == commit
    (git / "refs" / "heads" / "trunk").write_text(f"{other}\n")
    assert _git_commit(tmp_path / "main") == other
    linked = git / "worktrees" / "w"
    linked.mkdir(parents=True)
    (linked / "HEAD").write_text("ref: refs/heads/trunk\n")
    (linked / "commondir").write_text("../..\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".git").write_text(f"gitdir: {linked}\n")
    assert _git_commit(tmp_path / "w") == other
    (git / "HEAD").write_text(f"{commit}\n")
    assert _git_commit(tmp_path / "main") == commit


def test_description_starts_with_the_numbers() -> None:
    text = describe(example())
    lines = text.splitlines()
    assert lines[0] == "kind: estimate"
    assert lines[2:4] == ["result", "  estimate           0.30000000000000004"]
    assert "values per worker  0.1 to 1 (2 × 3, 1 without pairs)" in text
    assert "bytes moved        800 kB" in text
    assert "data.x   é.h5" in text
    assert "2 round × 3 worker" in text
    assert "command       mpi-ustat estimate" in text
    assert describe(ResultFile("learn")) == "kind: learn"


def fails_with(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail
