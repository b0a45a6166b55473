"""Self-describing result files in HDF5, written whole or not at all.

A file holds numbers and everything needed to understand them without this program:

- root attributes `format`, `format_version` and `kind` (what it is), `config` (the run's options as JSON), and one for
  each entry of the provenance;
- datasets, in groups as their names say, with attributes `unit` and `description` and with labelled dimensions;
- `/scales/<dimension>`: the coordinates along a dimension (round numbers, worker numbers, grid values …), attached as
  HDF5 dimension scales to every dataset that has the dimension.

Two saves of the same content differ in nothing but the provenance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.storage.files import check_target, write_whole
from mpi_ustat.storage.hdf5_inspection import why_in_use
from mpi_ustat.storage.provenance import provenance
from mpi_ustat.storage.table import stamp_of

__all__ = ["Dataset", "ResultFile", "check_target", "load", "provenance", "save"]

_FORMAT = "mpi_ustat"
_FORMAT_VERSION = 1
_OWN_ATTRIBUTES = ("format", "format_version", "kind", "config")
_SCALES = "scales"
_COMPRESS_ABOVE = 100_000  # bytes; below, chunks and filters cost more than they save


@dataclass(frozen=True, eq=False)
class Dataset:
    """An array and what it means.

    Parameters
    ----------
    values : ndarray
        Numbers, truth values or strings, of any shape.
    dims : tuple of str
        The names of its dimensions, one for each; empty for scalars and for arrays without labels.
    unit : str
        "s", "bytes" …; "1" for a dimensionless quantity, empty where it is unknown.
    description : str
        One line for a reader who has only the file.
    """

    values: NDArray[Any]
    dims: tuple[str, ...] = ()
    unit: str = ""
    description: str = ""


@dataclass(frozen=True, eq=False)
class ResultFile:
    """The content of one file.

    Parameters
    ----------
    kind : str
        What made it: "estimate", "learn" …
    config : dict
        The options of the run; anything JSON can hold (tuples come back as lists).
    provenance : dict
        Text, numbers and truth values; see `provenance`.
    datasets : dict of Dataset
        By name; slashes in names make groups.
    scales : dict of ndarray
        For dimension names, the coordinates along the dimension.
    """

    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    scales: dict[str, NDArray[Any]] = field(default_factory=dict)


def save(path: str | os.PathLike[str], result: ResultFile, *, overwrite: bool = False) -> None:
    """Write a result file. To be called by one process, the master.

    Parameters
    ----------
    path : path-like
        The file to be written.
    result : ResultFile
        Its content.
    overwrite : bool
        Whether a file that is already there may be replaced.

    Raises
    ------
    UserError
        If the file cannot be written there; then nothing is left on disk.
    ValueError, TypeError
        If `result` contradicts itself or holds what a file cannot: a mistake of the calling code.
    """
    _check_consistent(result)
    # The file is composed in memory, so that a full disk is met by one plain write with a clear error instead of
    # somewhere inside the HDF5 library, which cannot close a file it failed to flush.
    with h5py.File(_FORMAT, "w", driver="core", backing_store=False) as file:
        _write_attributes(file, result)
        _write_datasets(file, result)
        file.flush()
        image: bytes = file.id.get_file_image()
    write_whole(path, image, overwrite=overwrite)


def load(path: str | os.PathLike[str]) -> ResultFile:
    """Read a result file.

    Raises
    ------
    UserError
        If it is missing, damaged, not written by this program, or written by a later version of it.
    """
    name = os.fspath(path)
    if not os.path.exists(name):
        raise UserError(f"there is no file '{name}': check the name")
    try:
        stamp_of(name)
        with open(name, "rb"):
            pass
    except OSError as error:
        raise UserError(f"'{name}' cannot be read ({error.strerror}): give a result file you may read") from error
    if not h5py.is_hdf5(name):
        raise UserError(f"'{name}' is not an HDF5 file: give a result file that mpi_ustat wrote")
    try:
        # Result files never change once they have their name; locks would only fail on file systems without them.
        with h5py.File(name, "r", locking=False) as file:
            _check_ours(file, name)
            return _read(file)
    except UserError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise UserError(
            why_in_use(name) or f"'{name}' is damaged or incomplete: make it again or take another copy"
        ) from error


def _check_consistent(result: ResultFile) -> None:
    taken = set(_OWN_ATTRIBUTES) & result.provenance.keys()
    if taken:
        raise ValueError(f"provenance must not use the names {sorted(taken)}")
    lengths: dict[str, int] = {}
    for name, values in result.scales.items():
        if np.ndim(values) != 1 or "/" in name or not name:
            raise ValueError(f"the scale {name!r} must have one dimension and a name without slashes")
        _check_storable(f"scale {name!r}", np.asarray(values))
        lengths[name] = len(values)
    for name, dataset in result.datasets.items():
        if any(part in ("", ".", "..") for part in name.split("/")) or name.split("/")[0] == _SCALES:
            raise ValueError(f"{name!r} cannot be the name of a dataset")
        values = np.asarray(dataset.values)
        _check_storable(f"dataset {name!r}", values)
        if dataset.dims and len(dataset.dims) != values.ndim:
            raise ValueError(f"dataset {name!r} has {values.ndim} dimensions and {len(dataset.dims)} names for them")
        for dim, length in zip(dataset.dims, values.shape, strict=False):
            if lengths.setdefault(dim, length) != length:
                raise ValueError(f"dimension {dim!r} has length {length} in {name!r} and {lengths[dim]} elsewhere")


def _check_storable(what: str, values: NDArray[Any]) -> None:
    if values.dtype.kind not in "biufcSU":
        raise TypeError(f"{what} has dtype {values.dtype}, and only numbers, truth values and strings can be stored")


def _write_attributes(file: h5py.File, result: ResultFile) -> None:
    file.attrs["format"] = _FORMAT
    file.attrs["format_version"] = _FORMAT_VERSION
    file.attrs["kind"] = result.kind
    # Strict JSON, so that any language reads it; in ASCII, because file names may hold what UTF-8 cannot.
    file.attrs["config"] = json.dumps(result.config, allow_nan=False, default=_plain)
    for name, value in result.provenance.items():
        file.attrs[name] = _attribute(name, value)


def _plain(value: Any) -> Any:
    """Turn NumPy scalars and arrays and paths into what JSON knows."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} cannot be stored as JSON")


def _attribute(name: str, value: Any) -> str | int | float | bool:
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, str | int | float | bool):
        raise TypeError(f"the provenance entry {name!r} must be text, a number or a truth value")
    if isinstance(plain, int) and not -(2**63) <= plain < 2**64:
        return str(plain)  # HDF5's integers end there; a seed may not
    return plain


def _write_datasets(file: h5py.File, result: ResultFile) -> None:
    for name, values in result.scales.items():
        _create(file, f"{_SCALES}/{name}", np.asarray(values)).make_scale(name)
    for name, dataset in result.datasets.items():
        stored = _create(file, name, np.asarray(dataset.values))
        for key, text in (("unit", dataset.unit), ("description", dataset.description)):
            if text:
                stored.attrs[key] = text
        for axis, dim in enumerate(dataset.dims):
            stored.dims[axis].label = dim
            if dim in result.scales:
                stored.dims[axis].attach_scale(file[f"{_SCALES}/{dim}"])


def _create(file: h5py.File, name: str, values: NDArray[Any]) -> h5py.Dataset:
    options: dict[str, Any] = {}
    if values.dtype.kind == "U":
        options["dtype"] = h5py.string_dtype("utf-8")
        values = values.astype(object)
    elif values.nbytes > _COMPRESS_ABOVE and values.ndim:
        options |= {"compression": "gzip", "compression_opts": 1, "shuffle": True}
    return file.create_dataset(name, data=values, track_times=False, **options)


def _check_ours(file: h5py.File, name: str) -> None:
    if _text(file.attrs.get("format", "")) != _FORMAT:
        raise UserError(f"'{name}' was not written by mpi_ustat: give one of its result files")
    version = int(file.attrs["format_version"])
    if version > _FORMAT_VERSION:
        raise UserError(f"'{name}' was written by a later version of mpi_ustat (format {version}): update mpi_ustat")


def _read(file: h5py.File) -> ResultFile:
    datasets: dict[str, Dataset] = {}
    scales: dict[str, NDArray[Any]] = {}
    for name, stored in _walk(file):
        values = _values(stored)
        if name.startswith(f"{_SCALES}/"):
            scales[name.removeprefix(f"{_SCALES}/")] = values
            continue
        labels = tuple(str(dim.label) for dim in stored.dims)
        datasets[name] = Dataset(
            values,
            dims=labels if any(labels) else (),
            unit=_text(stored.attrs.get("unit", "")),
            description=_text(stored.attrs.get("description", "")),
        )
    return ResultFile(
        kind=_text(file.attrs["kind"]),
        config=json.loads(_text(file.attrs["config"])),
        provenance={
            key: value.item() if isinstance(value, np.generic) else value
            for key, value in file.attrs.items()
            if key not in _OWN_ATTRIBUTES
        },
        datasets=datasets,
        scales=scales,
    )


def _walk(group: h5py.Group, prefix: str = "") -> Iterator[tuple[str, h5py.Dataset]]:
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            yield from _walk(item, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", item


def _values(stored: h5py.Dataset) -> NDArray[Any]:
    if h5py.check_string_dtype(stored.dtype) is not None and stored.dtype.kind == "O":
        return np.asarray(stored.asstr()[()], dtype=np.str_)
    return np.asarray(stored[()])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
