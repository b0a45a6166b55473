"""Completion and manual pages in share/: those of the options that there are now, readable by shells and man."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY

SHARE = REPOSITORY / "share"
FILES = sorted(path for path in SHARE.rglob("*") if path.is_file())
PAGES = [path for path in FILES if path.suffix == ".1"]

ASKED = """\
source bash-completion/completions/mpi-ustat
while read -r -a COMP_WORDS; do
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _shtab_mpi_ustat
    echo "${COMPREPLY[@]}"
done
"""


def test_the_files_are_those_of_the_options_there_are() -> None:
    """To the letter where the same packages have made them, else as far as options go."""
    pytest.importorskip("shtab")
    pytest.importorskip("argparse_manpage")
    from shell_files import contents

    found = contents()
    assert sorted(found) == [str(path.relative_to(SHARE)) for path in FILES]
    stale = []
    for place, text in found.items():
        stored = (SHARE / place).read_text(encoding="utf-8")
        if stored != text and (_made_by(stored) == _made_by(text) or _options(stored) != _options(text)):
            stale.append(place)
    assert not stale, f"run scripts/shell_files.py: {stale}"


def _made_by(text: str) -> str:
    return next(line for line in text.splitlines() if "made by" in line)


def _options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text.replace("\\-", "-")))


def test_a_shell_completes_by_them() -> None:
    asked = ["est", "estimate --bias", "estimate --kernel ener", "batch slurm --cpus", "learn --loss sq"]
    done = subprocess.run(
        ["bash", "-c", ASKED],
        input="".join(f"mpi-ustat {words}\n" for words in asked),
        cwd=SHARE,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    wanted = ["estimate", "--bias-report", "energy", "--cpus-per-task", "squared-hinge"]
    assert (done.stdout.splitlines(), done.stderr) == (wanted, "")


@pytest.mark.parametrize(("shell", "place"), [("zsh", "site-functions/_mpi-ustat"), ("fish", "vendor_completions.d/*")])
def test_other_shells_can_read_them(shell: str, place: str) -> None:
    path = next((SHARE / shell).glob(place))
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    subprocess.run([shell, "-n", str(path)], check=True, timeout=20)


def test_man_can_read_the_pages() -> None:
    if shutil.which("groff") is None:
        pytest.skip("there is no groff here")
    # All warnings but those of long words that can't be set flush.
    command = ["groff", "-man", "-Tutf8", "-ww", "-Wbreak", *map(str, PAGES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert done.stderr == ""
    text = re.sub(".\b", "", done.stdout)
    assert text.count("\nNAME\n") == text.count("\nSYNOPSIS\n") == len(PAGES)


def test_the_wheel_takes_all_of_them() -> None:
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg")

    def taken() -> Iterator[Path]:
        for target, patterns in config["options.data_files"].items():
            for pattern in patterns.split():
                found = list(REPOSITORY.glob(pattern))
                assert all(path.parent == REPOSITORY / target for path in found)
                yield from found

    assert sorted(taken()) == FILES
