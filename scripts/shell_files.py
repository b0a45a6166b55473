#!/usr/bin/env python3
"""Write what shells know of mpi-ustat: completion for bash, zsh and fish, and the manual page. Needs the extra `test`.

The files lie in share/ and go into the wheel, from which pip puts them where shells and man look:

    python scripts/shell_files.py           # after any change of an option
    python scripts/shell_files.py --check   # exit code 1 if there was one

tests/scripts/test_shell_files.py does the second.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import shtab
from argparse_manpage.manpage import Manpage

from mpi_ustat.app.cli import build_parser, commands_of
from mpi_ustat.kernels.registry import KERNELS

SHARE = Path(__file__).resolve().parents[1] / "share"
COMPLETIONS = {
    "bash": "bash-completion/completions/mpi-ustat",
    "zsh": "zsh/site-functions/_mpi-ustat",
    "fish": "fish/vendor_completions.d/mpi-ustat.fish",
}
PAGES = "man/man1"
OF_FILES = ("DATA", "MODEL", "FILE", "F", "F.h5", "FOLDER")
"""What stands for a file in the help."""


def parser_of_all() -> argparse.ArgumentParser:
    """Return the command line's parser, with the options of this package's kernels."""
    parser = build_parser()
    for command in commands_of(parser).values():
        command.before(())
        for action in command._actions:
            if action.metavar in OF_FILES:
                action.complete = shtab.FILE
            if action.dest == "kernel":
                action.choices = list(KERNELS)  # which are not all that there are
    return parser


def contents() -> dict[str, str]:
    """Return the files by their places in share/."""
    os.environ["COLUMNS"] = "100"
    parser = parser_of_all()
    found = {}
    for shell, place in COMPLETIONS.items():
        first, *rest = shtab.complete(parser, shell=shell).splitlines()
        # zsh wants `#compdef` in the first line.
        found[place] = "\n".join([first, f"# {made_by('shtab')}", *rest]) + "\n"
    commands = commands_of(parser)
    told = {each.dest: each.help or "" for each in _subparsers(parser)._choices_actions}
    for name, command in commands.items():
        found[f"{PAGES}/mpi-ustat-{name}.1"] = page(command, told[name])
    found[f"{PAGES}/mpi-ustat.1"] = page(_without_commands(parser, told), "U-statistics over data spread across MPI")
    return found


def page(parser: argparse.ArgumentParser, told: str) -> str:
    """Return a page of the manual in ASCII, which every `man` shows."""
    if parser.epilog:  # its lines are as they are meant
        lines = (f"\\&{line}" for line in parser.epilog.replace("\\", "\\e").replace("-", "\\-").splitlines())
        section = {"heading": "examples", "content": "\n".join([".nf", *lines, ".fi"])}
        vars(parser).update(epilog=None, _manpage=[section])
    made = Manpage(parser)
    made.prog = parser.prog.replace(" ", "-")
    made.date, made.source, made.manual, made.description = "", "mpi-ustat", "mpi-ustat", told
    text = re.sub(r"[^\x00-\x7f]", lambda sign: f"\\[u{ord(sign[0]):04X}]", str(made))
    return f'.\\" {made_by("argparse-manpage")}\n{text}'


def _subparsers(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[Any]:
    return next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def _without_commands(parser: argparse.ArgumentParser, told: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return a parser of the options before a command, whose page lists the commands and their pages."""
    whole: Any = argparse.ArgumentParser(parser.prog, usage=parser.format_usage()[7:], description=parser.description)
    for action in parser._actions:
        if "-h" not in action.option_strings and action is not _subparsers(parser):
            whole._add_action(action)
    lines = [f".TP\n\\fBmpi\\-ustat {name}\\fR\n{text}" for name, text in told.items()]
    pages = ", ".join(f"\\fBmpi\\-ustat\\-{name}\\fR(1)" for name in told)
    whole._manpage = [
        {"heading": "commands", "content": "\n".join(lines)},
        {"heading": "see also", "content": pages},
    ]
    return whole


def made_by(package: str) -> str:
    """Return the line that says what a file was made by, on which its text depends."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"made by scripts/shell_files.py with Python {python} and {package} {version(package)}"


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    stale = 0
    for place, text in contents().items():
        path = SHARE / place
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{'is out of date' if check else 'written'}: {path}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
