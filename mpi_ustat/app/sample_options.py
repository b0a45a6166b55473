"""The options that say where the samples are, the same for every command that reads any, and which kernel."""

from __future__ import annotations

import argparse
import glob
import os
import re
import sys
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.registry import KERNELS, allows_infinite, n_samples_of
from mpi_ustat.kernels.user_pairs import DEFAULT_TILE
from mpi_ustat.mpi.runtime import together
from mpi_ustat.storage.data import SHUTTLE, DataSource, Samples
from mpi_ustat.storage.data import load as read_samples
from mpi_ustat.storage.files import absolute
from mpi_ustat.storage.formats import DECIMALS
from mpi_ustat.storage.several import is_pattern

_OPTIONS = {
    "tau": "tau",
    "bandwidth": "bandwidth",
    "mmd_kernel": "kernel",
    "threshold": "threshold",
    "metric": "metric",
}
"""The kernels' options: name on the command line, and of the kernel's."""


def whole_number(text: str) -> int:
    """Return the integer that an option's text writes.

    Raises
    ------
    ArgumentTypeError
        If it is none, or no 64 bits hold it.
    """
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}")
    if len(text.strip().lstrip("+-").lstrip("0")) > 19 or abs(int(text)) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text} is too large: give a whole number below 2^63")
    return int(text)


def add_file_arguments(parser: argparse.ArgumentParser, *, positive: str, columns: str, optional: bool = False) -> Any:
    """Add the options that `file_options` reads, for a file with both samples, and return their group.

    Parameters
    ----------
    parser : ArgumentParser
    positive, columns : str
        What the value of the label, and the columns, are to this command.
    optional : bool
        Whether the samples may be elsewhere.
    """
    data = parser.add_argument_group("data")
    data.add_argument(
        "data",
        nargs="?" if optional else None,
        metavar="DATA",
        help="HDF5, NPZ, NPY, MAT, CSV, LIBSVM, Parquet; shuttle; 'part-*.csv'",
    )
    data.add_argument("--label", metavar="COL", help="the column (name or 0-based number) that tells the samples apart")
    data.add_argument("--positive", metavar="LABEL", help=positive)
    data.add_argument("--columns", "--score", metavar="C[,C…]", help=columns)
    data.add_argument("--decimal", choices=DECIMALS, help="in the numbers of delimited text (default point)")
    return data


def file_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_file_arguments` has added, as options of a `DataSource`."""
    return {
        "path": arguments.data,
        "label": arguments.label,
        "positive": arguments.positive,
        "columns": tuple(each.strip() for each in arguments.columns.split(",")) if arguments.columns else (),
        "decimal": arguments.decimal or "point",
    }


def given_files(arguments: argparse.Namespace) -> list[str]:
    """Return the files, or patterns of them, that a command reads."""
    return list(_given_paths(arguments).values())


def _given_paths(arguments: argparse.Namespace) -> dict[str, str]:
    paths = {name: getattr(arguments, name, None) for name in ("data", "x", "z")}
    return {name: path for name, path in paths.items() if path is not None}


def add_sample_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `source_of` and `kernel_options` read."""
    data = add_file_arguments(
        parser,
        positive="its value for the x sample (for the AUC: the positives)",
        columns="the columns that make a point, names or numbers",
        optional=True,
    )
    data.add_argument(
        "--classes", metavar="L[,L…]", help="its values in order, the lowest class first: of two, the last is positive"
    )
    data.add_argument("--x", metavar="FILE", help="the x sample, when each sample has a file")
    data.add_argument("--z", metavar="FILE", help="the z sample")

    what = parser.add_argument_group("statistic")
    what.add_argument(
        "--kernel", default="auc", metavar="K", help=f"{', '.join(KERNELS)}, or module:function (default auc)"
    )
    what.add_argument("--ties", choices=("half", "strict", "shared"), help="what a tie counts: AUC half or strict")
    what.add_argument("--tau", choices=("a", "b"), help="which of Kendall's (default b)")
    what.add_argument("--mmd-kernel", choices=("gaussian", "linear"), help="of the MMD (default gaussian)")
    what.add_argument(
        "--bandwidth", type=float, metavar="W", help="of the Gaussian kernel exp(-|x-y|²/2W²) (default 1)"
    )
    what.add_argument("--threshold", type=float, metavar="S", help="similarity of a match (default 0.5)")
    what.add_argument("--metric", choices=("cosine", "inner"), help="similarity of embeddings (default cosine)")
    what.add_argument("--edges", metavar="E,E[,E…]", help="edges of the bins of a similarity histogram")
    what.add_argument("--tile", type=int, default=DEFAULT_TILE, help="tile side for a kernel of your own")


def source_of(comm: Any, arguments: argparse.Namespace) -> DataSource:
    """Return where the samples are; a user's kernel may be missing on one rank only.  Collective.

    How many there are follows from the kernel, and from whether there is a label.
    """
    classes = None
    folder = absolute("")
    with together(comm, "finding the kernel"):
        wanted = n_samples_of(arguments.kernel)
    if absolute("") != folder:  # a user's module has changed it
        arguments = argparse.Namespace(**vars(arguments) | _in_folder(folder, arguments))
    if arguments.classes is not None:
        classes = tuple(each.strip() for each in arguments.classes.split(","))
    elif wanted is None or min(wanted, default=2) > 2:
        classes = ()
    separate = arguments.x is not None or arguments.z is not None
    one = (
        wanted is not None
        and 1 in wanted
        and (2 not in wanted or (arguments.label is None and arguments.data != SHUTTLE))
        and not separate
    )
    return DataSource(
        classes=None if separate and arguments.classes is None else classes,
        # Of kernels of two samples x is the positives, as it is without --classes; the VUS' come in ascending order.
        highest_first=wanted is not None and 2 in wanted,
        one_sample=one,
        finite=not allows_infinite(arguments.kernel) or getattr(arguments, "learn", False),
        x_path=arguments.x,
        z_path=arguments.z,
        **file_options(arguments),
    )


def _in_folder(folder: str, arguments: argparse.Namespace) -> dict[str, str]:
    """Return the files that are read, by option, with their place."""
    found = {name: os.path.join(folder, path) for name, path in _given_paths(arguments).items()}
    # The folder may have characters of patterns.
    return {
        name: os.path.join(glob.escape(folder), path) if is_pattern(found[name]) else found[name]
        for name, path in _given_paths(arguments).items()
        if path != SHUTTLE or os.path.exists(found[name])
    }


def load(comm: Any, source: DataSource, n_workers: int) -> Samples:
    """Read this rank's part of the samples, and tell which columns were left out unasked.  Collective."""
    samples = read_samples(comm, source, n_workers)
    left_out = samples.description.get("left_out", ())
    if comm.rank == 0 and left_out:
        names = ", ".join(f"'{name}'" for name in left_out)
        print(
            f"mpi-ustat: {names} is left out as the index of the rows: name it with --columns if it is data",
            file=sys.stderr,
            flush=True,
        )
    return samples


def kernel_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the kernel's options that were given."""
    named = KERNELS.get(arguments.kernel)
    if arguments.ties is not None and (named is None or "ties" not in named.options):
        raise UserError(f"the kernel {arguments.kernel} has no option ties: leave it out")
    options = {name: getattr(arguments, given) for given, name in _OPTIONS.items()}
    if arguments.edges is not None:
        try:
            options["edges"] = [float(edge) for edge in arguments.edges.split(",")]
        except ValueError as error:
            raise UserError(f"the edges are '{arguments.edges}': give numbers between commas") from error
    return {name: value for name, value in options.items() if value is not None}


def column_names(arguments: argparse.Namespace, samples: Samples) -> tuple[str, ...]:
    """Return the names of the columns that are scores of their own."""
    return samples.columns if arguments.kernel == "auc" and len(samples.columns) > 1 else ()


def given_arguments(arguments: argparse.Namespace) -> list[str]:
    """Return the options of `add_sample_arguments` that were given, as on a command line."""
    words = [] if arguments.data is None else [arguments.data]
    names = ("label", "positive", "classes", "columns", "decimal", "x", "z", "ties", *_OPTIONS, "edges")
    for name in names:
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--kernel", arguments.kernel] if arguments.kernel != "auc" else []
    return words + (["--tile", str(arguments.tile)] if arguments.tile != DEFAULT_TILE else [])
