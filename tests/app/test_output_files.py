"""Where commands write: never over what they read, under names that fit, in the folder in which they began."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import h5py
import numpy as np
import pytest
from commands import refusal, some_rows, write_csv

from mpi_ustat.app.output_files import check_names
from mpi_ustat.errors import UserError
from mpi_ustat.storage.results import Dataset, ResultFile, load, save

Here = Callable[..., CompletedProcess[str]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of both samples in the working folder, that a result file could replace; and a link to the folder."""
    (tmp_path / "work").mkdir()
    (tmp_path / "linked").symlink_to("work")
    monkeypatch.chdir(tmp_path / "work")
    rows = np.array(some_rows())
    with h5py.File("data-1.h5", "w") as file:
        file["score"], file["label"] = rows.T
    return Path("data-1.h5")


@pytest.mark.parametrize("kind", ["a link", "virtual", "virtual over another", "external bytes"])
@pytest.mark.parametrize("command", ["estimate", "learn, checkpoint", "a pattern"])
def test_an_output_that_holds_what_an_input_shows_is_refused(here: Here, data: Path, kind: str, command: str) -> None:
    with h5py.File("source.h5", "w") as file:
        file["score"] = np.array(some_rows())[:, 0]
        n = len(file["score"])
    if kind == "external bytes":
        np.arange(float(n)).tofile("source.h5")
    with h5py.File("middle.h5", "w") as middle, h5py.File(data, "a") as file:
        del file["score"]
        for each, source in ((middle, "source.h5"), (file, "middle.h5" if "another" in kind else "source.h5")):
            if kind == "a link":
                each["score"] = h5py.ExternalLink(source, "score")
            elif kind == "external bytes":
                each.create_dataset("score", (n,), "f8", external=[(source, 0, 8 * n)])
            else:
                layout = h5py.VirtualLayout((n,), "f8")
                layout[:] = h5py.VirtualSource(source, "score", (n,))
                each.create_virtual_dataset("score", layout)
    for written in ["source.h5", "middle.h5"] if "another" in kind else ["source.h5"]:
        kept = Path(written).read_bytes()
        words = [word.format(read=data, written=written) for word in COMMANDS[command]]
        told = refusal(here(*words, "--overwrite"))
        assert "is also read, as '" in told and Path(written).read_bytes() == kept


ALIASES: dict[str, Callable[[Path], str]] = {
    "itself": str,
    "with another path": lambda data: f"../work/./{data}",
    "through a linked folder": lambda data: f"../linked/{data}",
    "symbolic link": lambda data: _made("soft.h5", lambda link: link.symlink_to(data)),
    "hard link": lambda data: _made("hard.h5", lambda link: link.hardlink_to(data)),
}


def _made(name: str, make: Callable[[Path], Any]) -> str:
    make(Path(name))
    return name


COMMANDS: dict[str, tuple[str, ...]] = {
    "estimate": ("estimate", "{read}", "--label", "label", "--score", "score", "--output", "{written}"),
    "two files": ("estimate", "--x", "other.h5", "--z", "{read}", "--score", "score", "--output", "{written}"),
    "a pattern": ("estimate", "*-1.h5", "--label", "label", "--score", "score", "--output", "{written}"),
    "checkpoint": ("estimate", "{read}", "--label", "label", "--score", "score", "--checkpoint", "{written}"),
    "learn": ("learn", "{read}", "--label", "label", "--output", "{written}"),
    "learn, checkpoint": ("learn", "{read}", "--label", "label", "--checkpoint", "{written}"),
    "plan": ("plan", "{read}", "--label", "label", "--score", "score", "--output", "{written}"),
    "plot": ("plot", "{read}", "--output", "{written}"),
    "batch": ("batch", "slurm", "--ntasks", "1", "--output", "{written}", "--", "learn", "{read}", "--label", "label"),
    "batch, its command": (
        *("batch", "slurm", "--ntasks", "1", "--", "learn", "{read}", "--label", "label", "--output", "{written}"),
        "--overwrite",
    ),
}


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_is_an_input_is_refused_before_anything_is_read(
    here: Here, data: Path, monkeypatch: pytest.MonkeyPatch, command: str, alias: str
) -> None:
    monkeypatch.setattr("mpi_ustat.storage.data.scan", None)
    written, kept = ALIASES[alias](data), data.read_bytes()
    words = [word.format(read=data, written=written) for word in COMMANDS[command]]
    told = refusal(here(*words, *([] if command.startswith("batch, ") else ["--overwrite"])))
    assert f"'{written}' is also read, as " in told
    assert data.read_bytes() == kept


def test_an_input_that_is_a_link_to_the_output_is_kept(here: Here, data: Path) -> None:
    Path("link.h5").symlink_to(data)
    told = refusal(here("estimate", "link.h5", "--label", "label", "--score", "score", "--output", data, "--overwrite"))
    assert "is also read, as 'link.h5'" in told


def test_an_output_that_a_pattern_will_match_is_refused(here: Here, data: Path) -> None:
    common = ("estimate", "--label", "label", "--score", "score", "--seed", 1, "--quiet", "--output")
    for pattern, output in (("data-*.h5", "data-out.h5"), ("../work/d*", "../linked/do.h5"), ("../w*/*.h5", "r.h5")):
        assert "is also read, as '" in refusal(here(*common, output, pattern))
    for pattern, output in (("data-?.h5", "data-out.h5"), ("../work/d*.h5", "../data-2.h5"), ("*.h5", ".hidden.h5")):
        assert here(*common, output, pattern).returncode == 0
        os.unlink(output)


def test_files_that_a_shell_has_found_are_those_of_the_pattern(here: Here, data: Path) -> None:
    """In all commands; as-is, where their order counts."""
    names = [f"part-{k}.csv" for k in (1, 10, 2)]
    for k, name in enumerate(names):
        write_csv(Path(name), some_rows(40 + k))
    common = ["--label", "label", "--score", "score", "--seed", 1]
    assert here("learn", data, *common, "--iterations", 9, "--quiet", "--output", "m.h5").returncode == 0
    for command, own, model, result in (
        ("estimate", [*common, "--workers", 7, "--scheme", "as-is"], [], "per_worker/value"),
        ("learn", [*common, "--workers", 3, "--iterations", 9], [], "weights"),
        ("predict", ["--label", "label"], ["m.h5"], "score"),
    ):
        words = [*own, "--quiet", "--output", "r.h5"]
        found = []
        for line in (["part-*.csv", *words], [*names, *words], [*words, *model, *names]):
            done = here(command, *(line if line[-1] == names[-1] else [*model, *line]))
            assert (done.returncode, done.stderr) == (0, "")
            found.append(load("r.h5").datasets[result].values.tolist())
            os.unlink("r.h5")
        assert found[0] == found[1] == found[2]
    two = here("estimate", "--x", *names[:2], "--z", names[2], "--score", "score", "--complete", "--json").stdout
    assert '"sizes": [81, 42]' in two
    assert "is also read, as 'part-10.csv'" in refusal(
        here("estimate", *names, *common, "--output", "part-10.csv", "--overwrite")
    )


def test_a_picture_does_not_replace_its_numbers(here: Here, data: Path) -> None:
    save("r.png", ResultFile("estimate", {}, {}, {"estimate": Dataset(np.array(0.5))}))
    assert "is also read" in refusal(here("plot", "r.png", "--overwrite"))
    assert load("r.png").kind == "estimate"


def test_reproduce_keeps_its_runs_apart_from_its_results(here: Here, tmp_path: Path) -> None:
    (tmp_path / "fig2.partial.h5").symlink_to("fig2.h5")
    assert "is also read" in refusal(here("reproduce", "fig2", "--quiet", "--overwrite", "--folder", tmp_path))


@pytest.mark.parametrize("command", ["estimate", "learn"])
def test_result_and_checkpoint_are_told_apart_before_the_work(
    here: Here, data: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("mpi_ustat.storage.data.scan", None)
    common = [command, data, "--label", "label", "--score", "score", "--overwrite"]
    Path("a.h5").write_bytes(b"")
    Path("b.h5").hardlink_to("a.h5")
    for output, checkpoint in (("r.h5", "r.h5"), ("r.h5", "../linked/r.h5"), ("a.h5", "b.h5")):
        told = refusal(here(*common, "--output", output, "--checkpoint", checkpoint))
        assert "can't be output and checkpoint at once" in told
        told = refusal(
            here("batch", "pbs", "--ntasks", 1, "--", *common, "--output", output, "--checkpoint", checkpoint)
        )
        assert "can't be output and checkpoint at once" in told
    told = refusal(here("batch", "pbs", "--ntasks", 1, "--output", "r.h5", "--", *common, "--output", "../linked/r.h5"))
    assert "can't be output and job script at once" in told


# --- names


@pytest.mark.parametrize(
    "suffix", [".csv", ".json", ".txt", ".npz", ".png", ".h5.gz", ".CSV", ".mat", ".parquet", ".py"]
)
def test_names_of_other_formats_are_refused(here: Here, data: Path, suffix: str) -> None:
    for command, option in (("estimate", "output"), ("learn", "output"), ("plan", "output"), ("learn", "checkpoint")):
        if option == "output" and command != "learn" and suffix.lower() in (".csv", ".json", ".parquet"):
            continue  # tables
        words = [command, data, "--label", "label", f"--{option}", f"r{suffix}"]
        told = refusal(here(*words))
        assert told.startswith(f"the {option} 'r{suffix}' would be an HDF5 file") and "end its name in .h5" in told
        assert refusal(here("batch", "slurm", "--ntasks", 2, "--", *words)) == told
    assert not list(Path().glob("r*"))


def test_names_that_promise_hdf5_or_nothing_are_good() -> None:
    for name in ("r.h5", "r.HDF5", "r.he5", "r.hdf", "r", "auc-0.05", "a.csv.h5", ".h5", "x.d/r", "r."):
        check_names({"output": name, "checkpoint": f"c{name}"}, ["data.csv"])
    for name in ("c.ck", "c.ckpt", "c.chk", "run.checkpoint"):
        check_names({"output": None, "checkpoint": name}, [])
        with pytest.raises(UserError, match="would be an HDF5 file"):
            check_names({"output": name}, [])


def test_a_batch_command_without_its_dashes_is_told_where_they_belong(here: Here) -> None:
    for words in (["estimate", "A", "--score", "s"], ["estimate", "A"], ["--no-such-option"], []):
        told = refusal(here("batch", "slurm", "--ntasks", 2, *words))
        assert "comes after two dashes" in told
        shown = ["batch", "slurm", "--ntasks", "2", "--", *words] if "A" in words else ["batch", "slurm", "…", "--"]
        assert f": mpi-ustat {' '.join(shown)}" in told


# --- the folder

WANDERING = """\
import os
{0}os.chdir({folder!r})
def h(x, z):
    {1}os.chdir({folder!r})
    return x[:, None, 0] * z[None, :, 0]
"""


@pytest.mark.parametrize("when", ["imported", "called"])
def test_a_kernel_that_changes_the_folder_moves_no_file(
    here: Here, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    elsewhere, name = tmp_path / "elsewhere", f"wandering_{when}"
    elsewhere.mkdir()
    marks = ("", "#") if when == "imported" else ("#", "")
    (tmp_path / f"{name}.py").write_text(WANDERING.format(*marks, folder=str(elsewhere)))
    monkeypatch.syspath_prepend(tmp_path)
    start = os.getcwd()
    # As the kernel may be looked for in the working folder, or not.
    common = ["--kernel", f"{name}:h", "--label", "label", "--score", "score", "--seed", 1, "--workers", 2]
    write_csv(Path("part-1.csv"), some_rows())
    wanted = sorted(os.listdir())
    for command in (
        ["estimate", data, "--quiet", "--rounds", 2, "--checkpoint", "c.h5", "--checkpoint-every", 1],
        ["estimate", "part-*.csv", "--quiet", "--rounds", 2],
        ["plan", data, "--budget-seconds", 1, "--json"],
    ):
        os.chdir(start)
        monkeypatch.delitem(sys.modules, name, raising=False)
        assert here(*command, *common, "--output", "r.h5", "--overwrite").returncode == 0
        os.chdir(start)
        assert os.path.exists("r.h5")
        os.unlink("r.h5")
    os.unlink("c.h5")
    assert sorted(os.listdir()) == wanted
    assert not list(elsewhere.iterdir())
