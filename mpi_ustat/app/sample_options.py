"""The options that say where the samples are, the same for every command that reads any, and which kernel."""

from __future__ import annotations

import argparse
import ast
import functools
import glob
import itertools
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mpi_ustat.app.text_options import TEXT_OPTIONS, add_text_arguments, text_options
from mpi_ustat.errors import UserError
from mpi_ustat.kernels.kernel import Kernel
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.registry import DEFAULT_KERNEL, KERNELS, find_kernel, installed, n_samples_of, options_of
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.mpi.runtime import together
from mpi_ustat.storage.data import DataSource, Samples, read_samples
from mpi_ustat.storage.files import absolute
from mpi_ustat.storage.several import Path, as_given, is_pattern
from mpi_ustat.storage.shuttle import SHUTTLE


class Files(argparse.Action):
    """One file or pattern, or several: those that a shell has put in the place of a pattern, unless it is quoted."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Keep None for none, a text for one, a tuple of several."""
        setattr(namespace, self.dest, as_given(values) if values else None)


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
        nargs="*" if optional else "+",
        action=Files,
        metavar="DATA",
        help="HDF5, NPZ, NPY, MAT, CSV, LIBSVM, Parquet; shuttle; several with the same columns: part-*.csv",
    )
    data.add_argument("--label", metavar="COL", help="the column (name or 0-based number) that tells the samples apart")
    data.add_argument("--positive", metavar="LABEL", help=positive)
    data.add_argument("--rest", action="store_true", help="all other labels together are the other sample")
    data.add_argument("--columns", "--score", metavar="C[,C…]", help=columns)
    add_text_arguments(data)
    return data


def file_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `add_file_arguments` as options of a `DataSource`."""
    return {
        "path": arguments.data,
        "label": arguments.label,
        "positive": arguments.positive,
        "rest": arguments.rest,
        "columns": tuple(each.strip() for each in arguments.columns.split(",")) if arguments.columns else (),
        **text_options(arguments),
    }


def given_files(arguments: argparse.Namespace) -> list[str]:
    """Return the files, or patterns of them, that a command reads."""
    return [file for path in _given_paths(arguments).values() for file in _each(path)]


def _each(path: Path) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else path


def _given_paths(arguments: argparse.Namespace) -> dict[str, Path]:
    paths = {name: getattr(arguments, name, None) for name in ("data", "x", "z", "test_data")}
    return {name: path for name, path in paths.items() if path is not None}


def add_sample_arguments(parser: Any) -> None:
    """Add the options that `source_of` and `kernel_options` read."""
    data = add_file_arguments(
        parser,
        positive="its value for the x sample (for the AUC: the positives)",
        columns="the columns that make a point, names, numbers, or ranges (0-63, a..f); for energy and mmd default all",
        optional=True,
    )
    data.add_argument(
        "--classes", metavar="L[,L…]", help="its values in order, the lowest class first: of two, the last is positive"
    )
    of_x = "the x sample, when each sample has a file, or several"
    data.add_argument("--x", nargs="+", action=Files, metavar="FILE", help=of_x)
    data.add_argument("--z", nargs="+", action=Files, metavar="FILE", help="the z sample")

    parser.before = functools.partial(_add_kernel_options, parser.add_argument_group("statistic"))


def _add_kernel_options(group: Any, words: Sequence[str]) -> None:
    """Add the options of all kernels to the group, of other packages' only those that the words ask for.

    Kernels share an option that is spelled in the same way.
    """
    kernels = _kernels(words)
    added = {action.dest for action in group._group_actions}
    if not added:
        group.add_argument(
            "--kernel",
            default=DEFAULT_KERNEL,
            metavar="K",
            help=f"{', '.join(kernels)}, or your own as module:function or ./file.py:function (default auc)",
        )
        group.add_argument(
            "--kernel-option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="of your own kernel: a function or class that takes the options by name, and returns the kernel; "
            "once for each",
        )
    options: dict[str, dict[Option, None]] = {}
    for option in itertools.chain.from_iterable(kind.options for kind in kernels.values()):
        if option.argument is not None:
            options.setdefault(option.argument, {})[option] = None
    for argument, of_kernels in options.items():
        types = {str if each.words else each.type for each in of_kernels}
        choices, bare = [each.choices for each in of_kernels], next(iter(of_kernels)).bare
        if argument in added:
            continue
        flag = f"--{argument.replace('_', '-')}"
        try:
            group.add_argument(
                flag,
                type=types.pop() if types in ({int}, {float}) else str,
                choices=tuple(dict.fromkeys(itertools.chain(*choices))) if all(choices) else None,
                help="; ".join(each.described for each in of_kernels).replace("%", "%%"),
                metavar=next(iter(of_kernels)).metavar,
                **({} if bare is None else {"nargs": "?", "const": bare}),
            )
        except argparse.ArgumentError as error:
            if not asks_for_help(words):
                raise UserError(
                    f"{flag} means something else already: give the kernel's option another flag"
                ) from error
    if not added:
        group.add_argument("--tile", type=int, default=DEFAULT_TILE, help="tile side for a kernel of your own")


def asks_for_help(words: Sequence[str]) -> bool:
    """Tell whether the words are to print help and nothing else."""
    return not {"-h", "--help"}.isdisjoint(words)


def _kernels(words: Sequence[str]) -> dict[str, type[Kernel]]:
    """Return the classes of kernels by name; other packages' if the words name them, or ask for help."""
    if not asks_for_help(words):
        named = [word.partition("=")[2] for word in words if "=" in word]
        named += [value for option, value in itertools.pairwise(words) if option.startswith("--k")]
        return KERNELS | {name: kind for name in named if ":" not in name and (kind := find_kernel(name)) is not None}
    whole = dict(KERNELS)
    for name in installed():
        with suppress(UserError):  # which using it will tell
            whole[name] = find_kernel(name) or whole[name]
    return whole


def source_of(
    comm: Any, arguments: argparse.Namespace, said: tuple[tuple[str, str], ...] = (), *, multiclass: bool = False
) -> DataSource:
    """Return where the samples are; a user's kernel may be missing on one rank only.  Collective.

    How many there are follows from the kernel, and from whether there is a label.
    """
    classes = None
    folder = absolute("")
    with together(comm, "finding the kernel"):
        known = find_kernel(arguments.kernel)
        wanted = n_samples_of(arguments.kernel, kernel_options(arguments))
    if absolute("") != folder:  # a user's module has changed it
        arguments = argparse.Namespace(**vars(arguments) | _in_folder(folder, arguments))
    if arguments.classes is not None:
        classes = tuple(each.strip() for each in arguments.classes.split(","))
    elif multiclass or wanted is None or min(wanted, default=2) > 2:
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
        highest_first=wanted is not None and 2 in wanted and not multiclass,
        by_name=multiclass,
        otherwise_all=known is not None and known.all_columns,
        one_sample=one,
        finite=(known is not None and not known.allows_infinite) or getattr(arguments, "learn", False),
        x_path=arguments.x,
        z_path=arguments.z,
        said=said,
        **file_options(arguments),
    )


def _in_folder(folder: str, arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the files that are read, by option, with their place."""

    def placed(path: str) -> str:
        whole = os.path.join(folder, path)
        if path == SHUTTLE and not os.path.exists(whole):
            return path
        # The folder may have characters of patterns.
        return os.path.join(glob.escape(folder), path) if is_pattern(whole) else whole

    found = {name: tuple(map(placed, _each(path))) for name, path in _given_paths(arguments).items()}
    return {name: paths if len(paths) > 1 else paths[0] for name, paths in found.items()}


def load_samples(comm: Any, source: DataSource, n_workers: int) -> Samples:
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
    """Return the kernel's options that were given, but for ties, which are a run's own."""
    own = options_of(arguments.kernel)
    if arguments.ties is not None and "ties" not in own:
        raise UserError(f"the kernel {arguments.kernel} has no option ties: leave it out")
    of_all = [option for kind in KERNELS.values() for option in kind.options]
    options = {option.argument: option for option in (*of_all, *own.values())}  # the kernel's own prevail
    given = {option: getattr(arguments, name) for name, option in options.items() if name not in (None, "ties")}
    found = {
        option.name: value if isinstance(value, int | float) else option.read(value)
        for option, value in given.items()
        if value is not None
    }
    for text in arguments.kernel_option:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UserError(f"--kernel-option {text}: give it as name=value, such as radius=0.5")
        if name in found:
            raise UserError(f"the option {name} of the kernel {arguments.kernel} is given twice: leave one out")
        found[name] = own[name].read(value) if name in own else _plain_value(value)
    return found


def _plain_value(text: str) -> Any:
    """Return the number, list, True, False or None that a text is in Python; otherwise the text itself."""
    try:
        value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)  # results tell what it was
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value


def column_names(arguments: argparse.Namespace, samples: Samples) -> tuple[str, ...]:
    """Return the names of the columns that have statistics of their own, if there are several."""
    kernel = find_kernel(arguments.kernel)
    if kernel is None or not kernel.of_columns:
        return ()
    columns = samples.columns[kernel.leading_columns :]
    return columns if len(columns) > 1 else ()


def given_arguments(arguments: argparse.Namespace) -> list[str]:
    """Return the options of `add_sample_arguments` that were given, as on a command line."""
    words = [] if arguments.data is None else [*_each(arguments.data)]
    of_kernels = [option.argument for kind in KERNELS.values() for option in kind.options]
    of_kernels += [option.argument for option in options_of(arguments.kernel).values()]
    words += [f"--kernel-option={each}" for each in arguments.kernel_option]
    of_files = ("label", "positive", "classes", "columns", *TEXT_OPTIONS, "x", "z")
    names = (*of_files, *filter(None, dict.fromkeys(of_kernels)))
    for name in names:
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", *(value if isinstance(value, tuple) else [str(value)])]
    words += ["--rest"] if arguments.rest else []
    words += ["--kernel", arguments.kernel] if arguments.kernel != DEFAULT_KERNEL else []
    return words + (["--tile", str(arguments.tile)] if arguments.tile != DEFAULT_TILE else [])
