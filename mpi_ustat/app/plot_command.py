"""`mpi-ustat plot`: result files as pictures."""

from __future__ import annotations

import argparse
import os
from typing import Any

from mpi_ustat.app.output_files import check_names
from mpi_ustat.errors import UserError
from mpi_ustat.storage.results import as_written, load


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser("plot", help="draw a result file")
    parser.add_argument("files", metavar="F.h5", nargs="+", help="one; trade-offs of several settings go together")
    parser.add_argument("--output", metavar="PICTURE", help="a .png, .pdf or .svg file (default: F.png)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing picture")
    parser.set_defaults(run=run_command, serial=True)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Draw the files, and print the picture's name."""
    from mpi_ustat.plots.pictures import draw, save_figure

    files, target = arguments.files, arguments.output
    if target is None:
        if len(files) > 1:
            raise UserError("a picture of several files cannot take the name of one: add --output PICTURE")
        target = f"{os.path.splitext(files[0])[0]}.png"
    check_names({"picture": target}, files)
    results = [load(file) for file in files]
    with as_written("', '".join(files)):
        save_figure(draw(*results), target, overwrite=arguments.overwrite)
    print(target)
    return 0
