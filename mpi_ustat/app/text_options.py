"""The options that say how delimited text is to be read, the same for every command that reads any."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from mpi_ustat.storage.text_format import CHOICES, TextFormat

TEXT_OPTIONS = tuple(each.name for each in fields(TextFormat))
"""Their names, in Python and on the command line."""


def add_text_arguments(group: Any) -> None:
    """Add the options that `text_options` reads to a group of a parser's."""
    group.add_argument("--decimal", choices=CHOICES["decimal"], help="in the numbers of delimited text (default point)")
    group.add_argument(
        "--separator", "--sep", metavar="SIGN", help="between its cells: ';', tab, blank (default: seen)"
    )
    group.add_argument("--header", choices=CHOICES["header"], help="whether its first line is one (default: seen)")
    group.add_argument("--comment", metavar="SIGN", help="leave out its lines that begin with this, such as '#'")
    group.add_argument("--thousands", metavar="SIGN", help="between three digits and the next in its numbers")
    group.add_argument("--encoding", metavar="NAME", help="of its characters, such as latin-1 (default utf-8)")


def text_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_text_arguments` has added, as far as it is given, as options of a `DataSource`."""
    values = {name: getattr(arguments, name) for name in TEXT_OPTIONS}
    return {name: value for name, value in values.items() if value is not None}
