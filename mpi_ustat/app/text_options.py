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
    group.add_argument("--decimal", choices=CHOICES["decimal"], help="decimal sign of delimited text (default point)")
    group.add_argument(
        "--separator", "--sep", metavar="SIGN", help="between cells of text: ';', tab, blank (default: found out)"
    )
    group.add_argument("--header", choices=CHOICES["header"], help="has text a header line? (default: found out)")
    group.add_argument("--comment", metavar="SIGN", help="leave out lines of text that begin with this, such as '#'")
    group.add_argument("--thousands", metavar="SIGN", help="between groups of three digits in text")
    group.add_argument("--encoding", metavar="NAME", help="encoding of text, such as latin-1 (default utf-8)")


def text_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given arguments of `add_text_arguments` as options of a `DataSource`."""
    values = {name: getattr(arguments, name) for name in TEXT_OPTIONS}
    return {name: value for name, value in values.items() if value is not None}
