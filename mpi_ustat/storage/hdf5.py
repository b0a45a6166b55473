"""Arrays in HDF5 files, and in MATLAB's from version 7.3 on, which are HDF5 with every array transposed.

An array has the name of its path. Links to it, be they hard, soft or to a group above it, are other names for it; what
a link to another file leads to has the link's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.storage.hdf5_inspection import Inspection, files_of, opened_file, with_sources
from mpi_ustat.storage.stored import ROWS_AT_A_TIME, LinkedArrays, StoredArray, holds
from mpi_ustat.storage.texts import shown

_USABLE_IN_MATLAB = {
    "double",
    "single",
    "logical",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}

_DECLARE_MISSING = ("_FillValue", "missing_value")
"""Attributes by which netCDF says that a number stands for a value that is not there."""

_CHANGE_NUMBERS = {"scale_factor": 1.0, "add_offset": 0.0}
"""Attributes by which it says that other numbers are meant than are stored, and their values that change nothing."""

_BARE_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"
"""How the name of a dataset begins that has a length and no values."""


@contextmanager
def opened(path: str) -> Iterator[Mapping[str, StoredArray]]:
    """Open an HDF5 file and give its arrays of one or two dimensions by name."""
    with opened_file(path) as file:
        yield _Walk(file).found


@contextmanager
def opened_matlab(path: str) -> Iterator[Mapping[str, StoredArray]]:
    """Open a MATLAB file of version 7.3 and give its matrices by name; those with one row or column as vectors."""
    import h5py

    with opened_file(path) as file:
        found: dict[str, StoredArray] = {}
        inspection = Inspection()
        for name in file:
            # '#refs#' holds what cells point to, and an empty matrix is stored as its size.
            if name.startswith("#"):
                continue
            item = _item(file, name)
            if isinstance(item, str):
                found[name] = _Unusable(item)
            elif "MATLAB_empty" not in item.attrs and (isinstance(item, h5py.Group) or _n_dimensions(item) == 2):
                found[name] = _Matrix(item, inspection)
        yield found


# ---------------------------------------------------------------------------------------------------------------------
# What is in a file


class _Walk:
    """Finds the datasets of a file: first by the hard links, which are their paths, then by the other links."""

    def __init__(self, file: Any) -> None:
        self.found = LinkedArrays()
        self._inspection = Inspection()
        self._paths: dict[Any, str] = {file.id: ""}
        self._others: list[tuple[Any, str, str]] = []
        self._descend(file, "")
        while self._others:
            group, name, path = self._others.pop(0)
            self._take(_item(group, name), path)

    def _descend(self, group: Any, prefix: str) -> None:
        import h5py

        for name in sorted(group):
            path = f"{prefix}{name}"
            if isinstance(_link(group, name), h5py.HardLink):
                self._take(_item(group, name), path)
            else:
                self._others.append((group, name, path))

    def _take(self, item: Any, path: str) -> None:
        import h5py

        if isinstance(item, str):
            self.found[path] = _Unusable(item)
        elif item.id in self._paths:
            self.found.links[path] = self._paths[item.id]
        elif isinstance(item, h5py.Group):
            self._paths[item.id] = path
            self._descend(item, f"{path}/")
        elif 1 <= _n_dimensions(item) <= 2:
            name = _attribute(item, "NAME", "S")
            if name is not None and bytes(name[0]).startswith(_BARE_DIMENSION):
                return
            self._paths[item.id] = path
            self.found[path] = _Dataset(item, self._inspection)


def _link(group: Any, name: str) -> Any:
    """Return a link; None if it is of a kind that h5py doesn't know."""
    with suppress(TypeError):
        return group.get(name, getlink=True)
    return None


def _item(group: Any, name: str) -> Any:
    """Return the target of a link, or what `holds` is of a link that leads nowhere."""
    try:
        return group[name]
    except (KeyError, OSError, RuntimeError, ValueError, TypeError):
        link = _link(group, name)
        of_file = f" of '{shown(link.filename)}'" if hasattr(link, "filename") else ""
        if hasattr(link, "path"):
            return f"a link to '{shown(link.path)}'{of_file}, which is not there or can't be opened"
        return "something that can't be opened"


def _n_dimensions(item: Any) -> int:
    """Return how many dimensions a dataset has; 0 for anything else."""
    return len(getattr(item, "shape", None) or ())


def _attribute(item: Any, name: str, kinds: str) -> NDArray[Any] | None:
    """Return the values of an attribute if it is there and of one of these kinds of types.

    Others are not read: of a damaged file HDF5 may read texts of any length for ever, and keeps Python's lock.
    """
    if name not in item.attrs or item.attrs.get_id(name).dtype.kind not in kinds:
        return None
    values = np.ravel(item.attrs[name])
    return values if values.size else None


def _holds(dataset: Any) -> str:
    """Return the kind of a dataset's values, as `Column.holds` names it."""
    import h5py

    try:
        dtype = dataset.dtype
    except (TypeError, ValueError):
        return "values of a type that NumPy doesn't have"
    if h5py.check_string_dtype(dtype) is not None:
        return "text"
    if h5py.check_ref_dtype(dtype) is not None:
        return "references"
    if h5py.check_vlen_dtype(dtype) is not None:
        return "sequences of any length"
    if dtype.names is not None:
        return f"compound values of the fields {shown(', '.join(dtype.names))}"
    if dtype.kind == "V" and dtype.subdtype is None:
        return "opaque bytes"
    return holds(dtype)


class _Unusable(StoredArray):
    def __init__(self, what: str) -> None:
        self.shape, self.holds = (0,), what


class _Stored(StoredArray):
    """What arrays of HDF5 and of MATLAB have in common."""

    def __init__(self, dataset: Any, inspection: Inspection) -> None:
        self._dataset, self._inspection = dataset, inspection

    def _read_whole_chunks(self, axis: int) -> None:
        """Read as many rows at once as whole chunks have: a large one would be unpacked afresh for each part."""
        if self._dataset.chunks is not None and self._dataset.id.get_create_plist().get_nfilters():
            of_chunk = self._dataset.chunks[axis]
            self.rows_at_a_time = -(-ROWS_AT_A_TIME // of_chunk) * of_chunk

    def why_unreadable(self) -> str:
        why = self._inspection.why_unreadable(self._dataset)
        for source in with_sources(self._dataset) if not why else ():
            for name, neutral in _CHANGE_NUMBERS.items():
                values = _attribute(source, name, "biuf")
                if values is not None and np.any(values != neutral):
                    return f"has the attribute {name}, by which other numbers are meant than are stored: store those"
        return why

    def files(self) -> Iterable[str]:
        usable = self.holds in ("numbers", "text") and not self._inspection.why_unreadable(self._dataset)
        return set(files_of(self._dataset)) if usable else ()

    def declared_missing(self) -> Mapping[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {}
        kinds = "SO" if self.holds == "text" else "biuf"
        for source in with_sources(self._dataset):
            declared = {f"its attribute {name}": _attribute(source, name, kinds) for name in _DECLARE_MISSING}
            for what, values in (declared | {"the fill value of its dataset": _fill_value(source)}).items():
                if values is not None:
                    for dtype in (source.dtype, self._dataset.dtype):  # of a virtual dataset they may differ
                        values = _as_stored(values, dtype)
                    found[what] = np.concatenate([found[what], values]) if what in found else values
        return found


def _fill_value(dataset: Any) -> NDArray[Any] | None:
    """Return the fill value that a dataset's maker chose for numbers that nobody writes, unless it is 0.

    They can't be told from others in chunks that were written in part. Of types of a byte, any value is a usual one.
    """
    from h5py import h5d

    kind, size = dataset.dtype.kind, dataset.dtype.itemsize
    chosen = dataset.id.get_create_plist().fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED
    if not chosen or dataset.is_virtual or kind not in "iuf" or size == 1 or not dataset.fillvalue:
        return None
    return np.array([dataset.fillvalue])


def _as_stored(declared: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the declared values that can be among stored ones of a type; NaN is refused without a declaration."""
    if dtype.kind in "OS":
        texts = [each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in declared.flat]
        return np.array([each.encode() for each in texts] if dtype.kind == "S" else texts)
    with np.errstate(invalid="ignore", over="ignore"):
        values = declared.astype(dtype)
    return values if dtype.kind == "f" else values[values == declared]


class _Dataset(_Stored):
    def __init__(self, dataset: Any, inspection: Inspection) -> None:
        super().__init__(dataset, inspection)
        self.shape: tuple[int, ...] = dataset.shape
        self.holds = _holds(dataset)
        self._varies = self.holds == "text" and dataset.dtype.kind == "O"
        self._values = dataset.asstr() if self._varies else dataset
        self._read_whole_chunks(0)

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        if len(self.shape) == 1:
            values = self._values[first:last][:, np.newaxis]
        else:
            values = self._values[first:last, left:right]
        return values.astype(np.str_) if self._varies else values


class _Matrix(_Stored):
    def __init__(self, item: Any, inspection: Inspection) -> None:
        super().__init__(item, inspection)
        kind = item.attrs.get("MATLAB_class", b"")
        kind = kind.decode("utf-8", "replace") if isinstance(kind, bytes) else str(kind)
        self.shape: tuple[int, ...] = (0,)
        if not hasattr(item, "shape"):  # a structure, or a sparse matrix, whose class is that of its values
            self.holds = "a MATLAB structure or sparse matrix"
            return
        n_columns, n_rows = item.shape
        self._is_row = n_rows == 1
        self._read_whole_chunks(0 if self._is_row else 1)
        self.shape = (item.size,) if 1 in item.shape else (n_rows, n_columns)
        self.holds = _holds(item) if not kind or kind in _USABLE_IN_MATLAB else f"MATLAB values of class {shown(kind)}"

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        if self._is_row:
            return np.asarray(self._dataset[first:last, :])
        return np.asarray(self._dataset[left:right, first:last]).T
