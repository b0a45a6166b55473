"""Self-describing result files in HDF5, written whole or not at all.

A file holds numbers and everything needed to understand them without this program:

- root attributes `format`, `format_version` and `kind` (what it is), `config` (the run's options as JSON), `digest` (of
  the content), and one for each entry of the provenance;
- datasets, in groups as their names say, with attributes `unit` and `description` and with labelled dimensions;
- `/<dimension>`: the coordinates along a dimension (round numbers, worker numbers, grid values …), attached as HDF5
  dimension scale to every dataset that has the dimension. A dimension without coordinates has a scale too, without
  values, as netCDF has it: xarray and netCDF's tools read the files. Only where a dataset or a group has the name of a
  dimension, its scale is in `/scales`, as all were in the first version of the format.

Two saves of the same content differ in nothing but the provenance. A digest of all bytes follows the end of the HDF5
file: see `mpi_ustat.storage.seal`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.storage.files import write_whole
from mpi_ustat.storage.hdf5_inspection import why_in_use
from mpi_ustat.storage.opening import readable, stamp_of
from mpi_ustat.storage.seal import digest_of, records_of, sealed
from mpi_ustat.wording import count_of

_FORMAT = "mpi_ustat"
_FORMAT_VERSION = 2
_OWN_ATTRIBUTES = ("format", "format_version", "kind", "config", "digest")
_SCALES = "scales"
_NO_COORDINATES = "This is a netCDF dimension but not a netCDF variable."
_MOST_COMPRESSED = 1100  # times smaller; deflate reaches 1032
_COMPRESS_ABOVE = 100_000  # bytes; below, chunks and filters cost more than they save

SUFFIXES = (".h5", ".hdf5", ".he5", ".hdf")
"""What names of result files end in, if in anything."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """An array and what it means."""

    values: NDArray[Any]
    """Numbers, truth values or strings, of any shape."""
    dims: tuple[str, ...] = ()
    """The names of its dimensions, one for each; empty for scalars and for arrays without labels."""
    unit: str = ""
    """"s", "bytes" …; "1" for a dimensionless quantity, empty where it is unknown."""
    description: str = ""
    """One line for a reader who has only the file."""


@dataclass(frozen=True, eq=False)
class ResultFile:
    """The content of one file."""

    kind: str
    """What made it: "estimate", "learn" …"""
    config: dict[str, Any] = field(default_factory=dict)
    """The options of the run; anything JSON can hold (tuples come back as lists)."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Text, numbers and truth values; see `provenance`."""
    datasets: dict[str, Dataset] = field(default_factory=dict)
    """By name; slashes in names make groups."""
    scales: dict[str, NDArray[Any]] = field(default_factory=dict)
    """For dimension names, the coordinates along the dimension."""


def save(path: str | os.PathLike[str], result: ResultFile, *, overwrite: bool = False) -> None:
    """Write a result file, over one that is already there only if `overwrite`; to be called by the master alone.

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
        write_attributes(file, result)
        file.attrs["digest"] = _content_digest(file.attrs["config"], result)
        _write_datasets(file, result)
        file.flush()
        image: bytes = file.id.get_file_image()
    write_whole(path, sealed(image), overwrite=overwrite)


def load(path: str | os.PathLike[str]) -> ResultFile:
    """Read a result file.

    Raises
    ------
    UserError
        If it is missing, damaged or changed, not written by this program, or written by a later version of it. Files of
        earlier versions have no digests, of which only the damage is seen that makes them unreadable.
    """
    name = os.fspath(path)
    stamp_of(name)  # of a file, no pipe
    with readable(name, "a result file"), open(name, "rb"):
        pass
    with as_written(name):
        records_of(name)
        if not h5py.is_hdf5(name):
            raise UserError(f"'{name}' is not an HDF5 file: give a result file that mpi_ustat wrote")
        with _opened(name) as file:
            _check_ours(file, name)
            return _read(file)


def _opened(name: str) -> h5py.File:
    """Open a file to be read, without locks: result files never change once they have their name.

    On file systems without locks they would only fail. Where this process has the file open with them, as xarray does,
    HDF5 wants them again.
    """
    try:
        return h5py.File(name, "r", locking=False)
    except OSError as error:
        if "locking" not in str(error):
            raise
        return h5py.File(name, "r")


@contextmanager
def as_written(name: str) -> Iterator[None]:
    """Turn whatever a file that is not as it was written makes its readers raise into one sentence.

    Libraries raise what their code meets; so does what is made of numbers that a file should not have.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
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
            dimensions, names = count_of(values.ndim, "dimension"), count_of(len(dataset.dims), "name")
            raise ValueError(f"dataset {name!r} has {dimensions} and {names} for them")
        for dim, length in zip(dataset.dims, values.shape, strict=False):
            if lengths.setdefault(dim, length) != length:
                raise ValueError(f"dimension {dim!r} has length {length} in {name!r} and {lengths[dim]} elsewhere")


def _check_storable(what: str, values: NDArray[Any]) -> None:
    if values.dtype.kind not in "biufcSU":
        raise TypeError(f"{what} has dtype {values.dtype}, and only numbers, truth values and strings can be stored")


def write_attributes(file: h5py.File, result: ResultFile) -> None:
    """Write what is told of the datasets of a result file, but for a digest of all of it."""
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
    places = {name: _place(name, result) for name in result.scales}
    for name, values in result.scales.items():
        _create(file, places[name], np.asarray(values)).make_scale(name)
    for name, dataset in result.datasets.items():
        stored = _create(file, name, np.asarray(dataset.values))
        for key, text in (("unit", dataset.unit), ("description", dataset.description)):
            if text:
                stored.attrs[key] = text
        for axis, dim in enumerate(dataset.dims):
            stored.dims[axis].label = dim
            if dim and dim not in places:
                places[dim] = _place(dim, result)
                make_dimension(file, places[dim], stored.shape[axis])
            if dim:
                stored.dims[axis].attach_scale(file[places[dim]])


def make_dimension(file: h5py.File, place: str, length: int) -> None:
    """Make a dimension without coordinates: a scale of that length, of which nothing is stored."""
    file.create_dataset(place, shape=(length,), dtype=">f4", track_times=False).make_scale(
        f"{_NO_COORDINATES}{length:11d}"
    )


def _place(dim: str, result: ResultFile) -> str:
    """Return where the scale of a dimension is."""
    taken = any(name == dim or name.startswith(f"{dim}/") for name in result.datasets)
    return f"{_SCALES}/{dim}" if taken else dim


def _create(file: h5py.File, name: str, values: NDArray[Any]) -> h5py.Dataset:
    options: dict[str, Any] = {}
    if values.dtype.kind == "U":
        options["dtype"] = h5py.string_dtype("utf-8")
        values = values.astype(object)
    elif values.nbytes > _COMPRESS_ABOVE and values.ndim:
        options |= {"compression": "gzip", "compression_opts": 1, "shuffle": True}
    return file.create_dataset(name, data=values, track_times=False, **options)


def _content_digest(config: str, result: ResultFile) -> str:
    """Return a digest of all that `load` reads, however the file is laid out; `config` as it is stored."""

    def parts() -> Iterator[bytes]:
        provenance = {name: _attribute(name, value) for name, value in result.provenance.items()}
        yield from (result.kind.encode(), config.encode(), json.dumps(provenance, sort_keys=True).encode())
        arrays = {f"{_SCALES}/{name}": Dataset(values) for name, values in result.scales.items()} | result.datasets
        for name, dataset in sorted(arrays.items()):
            values = np.asarray(dataset.values)
            is_text = values.dtype.kind == "U"
            dims = dataset.dims if any(dataset.dims) else ()
            dtype = "text" if is_text else values.dtype.str
            meaning = dtype, values.shape, dims, dataset.unit, dataset.description
            yield from (name.encode(), repr(meaning).encode())
            yield json.dumps(values.tolist()).encode() if is_text else values.tobytes()

    return digest_of(parts())


def _check_ours(file: h5py.File, name: str) -> None:
    if "format" not in file.attrs or _attribute_of(file, "format") != _FORMAT:
        raise UserError(f"'{name}' was not written by mpi_ustat: give one of its result files")
    version = int(_attribute_of(file, "format_version"))
    if version > _FORMAT_VERSION:
        raise UserError(f"'{name}' was written by a later version of mpi_ustat (format {version}): update mpi_ustat")


def _read(file: h5py.File) -> ResultFile:
    datasets: dict[str, Dataset] = {}
    scales: dict[str, NDArray[Any]] = {}
    for name, stored in _walk(file, {_address(file)}):
        if stored.is_scale and str(_attribute_of(stored, "NAME")).startswith(_NO_COORDINATES):
            continue
        values = _values(stored)
        if stored.is_scale or name.startswith(f"{_SCALES}/"):
            scales[name.removeprefix(f"{_SCALES}/")] = values
            continue
        unit, description = (
            str(_attribute_of(stored, key)) if key in stored.attrs else "" for key in ("unit", "description")
        )
        datasets[name] = Dataset(values, _labels(stored), unit, description)
    config = str(_attribute_of(file, "config"))
    options = json.loads(config)
    if not isinstance(options, dict):
        raise ValueError("the options are not named")
    provenance = {key: _attribute_of(file, key) for key in file.attrs if key not in _OWN_ATTRIBUTES}
    result = ResultFile(str(_attribute_of(file, "kind")), options, provenance, datasets, scales)
    if "digest" in file.attrs and _attribute_of(file, "digest") != _content_digest(config, result):
        raise ValueError("the content is not what was written")
    return result


def _walk(group: h5py.Group, seen: set[int], prefix: str = "") -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield the datasets by name. No link leads to another file, to nowhere, or to a group again."""
    for name in group:
        item = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
        if isinstance(item, h5py.Group) and _address(item) not in seen:
            seen.add(_address(item))
            yield from _walk(item, seen, f"{prefix}{name}/")
        elif isinstance(item, h5py.Dataset):
            yield f"{prefix}{name}", item
        else:
            raise ValueError(f"{prefix}{name} is no dataset")


def _address(group: h5py.Group) -> int:
    return int(h5py.h5o.get_info(group.id).addr)


def _values(stored: h5py.Dataset) -> NDArray[Any]:
    is_text = h5py.check_string_dtype(stored.dtype) is not None and stored.dtype.kind == "O"
    if stored.shape is None or stored.is_virtual or stored.external or not (is_text or stored.dtype.kind in "biufcS"):
        raise ValueError(f"{stored.name} is of a kind that is never written")
    # What was never written reads as zeros, however many.
    if stored.nbytes > _MOST_COMPRESSED * stored.id.get_storage_size():
        raise ValueError(f"{stored.name} says that it has more values than there are")
    if is_text:
        return np.asarray(stored.asstr()[()], dtype=np.str_)
    return np.asarray(stored[()])


def _labels(stored: h5py.Dataset) -> tuple[str, ...]:
    """Return the names of the dimensions, none if none has one."""
    if "DIMENSION_LABELS" not in stored.attrs:
        return ()
    attribute = stored.attrs.get_id("DIMENSION_LABELS")
    if attribute.shape != (stored.ndim,) or h5py.check_string_dtype(attribute.dtype) is None:
        raise ValueError(f"{stored.name} has other dimensions than it says")
    labels = [each.decode() if isinstance(each, bytes) else each for each in stored.attrs["DIMENSION_LABELS"]]
    return tuple(label or "" for label in labels) if any(labels) else ()


def _attribute_of(item: h5py.Group | h5py.Dataset, name: str) -> str | int | float | bool:
    """Return an attribute, which must be a single text, number or truth value, before anything is read of it."""
    attribute = item.attrs.get_id(name)
    if attribute.shape != () or not (attribute.dtype.kind in "biufSU" or h5py.check_string_dtype(attribute.dtype)):
        raise ValueError(f"the attribute {name} is no text or number")
    value = item.attrs[name]
    return _attribute(name, value.decode() if isinstance(value, bytes) else value)
