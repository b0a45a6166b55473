"""What is printed: in any encoding, to readers that have gone, to full disks, to nowhere."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import some_rows, write_csv
from conftest import scrubbed_environment

from mpi_ustat import UserError
from mpi_ustat.app import console_streams as streams
from mpi_ustat.mpi.launch import launched_size
from mpi_ustat.storage.results import load

pytestmark = pytest.mark.skipif(launched_size()[0] > 1, reason="of one process")

Here = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("0.5 ± 0.1", "ascii", b"0.5 +- 0.1"),
        ("n ≤ 5 µs, 2·10², …", "ascii", b"n <= 5 us, 2*10^2, ..."),
        ("0.5 ± 0.1, n ≤ 5", "latin-1", b"0.5 \xb1 0.1, n <= 5"),
        ("é😀", "ascii", b"\\xe9\\U0001f600"),
        ("a\udce9b ±", "utf-8", b"a\xe9b \xc2\xb1"),  # a name that is no text
        ("a\udce9b ±", "ascii", b"a\xe9b +-"),
        ("\ud800", "utf-8", b"\\ud800"),
    ],
)
def test_any_text_goes_into_any_encoding(text: str, encoding: str, expected: bytes) -> None:
    codecs.register_error("plain", streams._plain)
    assert text.encode(encoding, "plain") == expected


@pytest.mark.parametrize("needed", [True, False])
def test_a_reader_that_has_gone_is_no_error(needed: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with streams._Output(writer, needed=needed) as stream:
        assert stream.write(b"123") == 3
    os.close(writer)


def test_a_full_disk_is_told_once_of_what_is_needed() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    with streams._stream(None, full, needed=True) as stream:
        stream.write("result")
        with pytest.raises(UserError, match=r"the output can't be written \(No space left on device\): free"):
            stream.flush()
        stream.write("more")
    with streams._stream(None, full, needed=False) as stream:
        print("nobody needs to know", file=stream, flush=True)
    os.close(full)


def run(words: str, data: Path, **more: str) -> CompletedProcess[bytes]:
    """Run a line of shell with the program as $p and the data as $d."""
    search = os.pathsep.join(filter(None, [str(Path(streams.__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environ = scrubbed_environment() | {"p": f"{sys.executable} -m mpi_ustat", "d": str(data), "PYTHONPATH": search}
    return subprocess.run(["sh", "-c", words], capture_output=True, timeout=60, check=False, env=environ | more)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "data.csv", some_rows())


FULL = b"mpi-ustat: the output can't be written (No space left on device): free some space, or send it elsewhere\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        ("$p estimate $d --label label >/dev/full", 2, FULL),
        ("$p --help >/dev/full", 2, FULL),
        ("$p estimate $d --label label --kernel nix 2>/dev/full", 2, b""),
        ("$p estimate $d --label label --kernel nix >&- 2>&-", 2, b""),
        ("$p estimate $d --label label --quiet <&- 2>&-", 0, b""),
        ("$p estimate --help >&-", 0, b""),
    ],
)
def test_full_and_closed_streams(data: Path, words: str, code: int, err: bytes) -> None:
    done = run(words, data)
    assert (done.returncode, done.stderr) == (code, err)
    assert bool(done.stdout) == ("--quiet" in words)


@pytest.mark.parametrize("command", ["estimate $d --label label", "estimate --help", "doctor $d"])
def test_a_terminal_may_know_ascii_only(data: Path, command: str) -> None:
    done = run(f"$p {command}", data, PYTHONIOENCODING="ascii", OMP_NUM_THREADS="1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    if "--help" not in command and "doctor" not in command:
        assert b" +- " in done.stdout


def test_what_is_printed_does_not_get_into_a_file_that_takes_the_place_of_a_closed_stream(data: Path) -> None:
    done = run("$p estimate $d --label label --kernel nix --output $d.h5 <&- >&- 2>&-", data)
    assert done.returncode == 2
    done = run("$p estimate $d --label label --output $d.h5 <&- >&- 2>&-", data)
    assert done.returncode == 0
    assert load(data.with_name("data.csv.h5")).kind == "estimate"


def test_a_script_has_the_bytes_of_its_words(tmp_path: Path) -> None:
    """Whatever the encoding of the terminal that it was made on."""
    words = "$p batch slurm --ntasks 2 -- estimate dé.csv --label y"
    done = run(words, tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "dé.csv".encode() in done.stdout
