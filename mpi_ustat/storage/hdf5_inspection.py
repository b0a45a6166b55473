"""Whether all numbers of an HDF5 dataset are there: HDF5 hands out fill values for what nobody has stored.

A dataset whose storage was never allocated, chunks that were never written, external files that are too short, virtual
datasets with a region without a source or a source that is gone: all of them read without an error. What can't be told
is a chunk of which only a part was written: HDF5 fills the rest of it, and from then on it is data like others,
unless the fill value tells.
"""

from __future__ import annotations

import fcntl
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.storage.texts import shown
from mpi_ustat.wording import count_of

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_OPEN_FOR_WRITING = 0b101  # the second bit is for writers that let others read

_DEEPEST = 32
"""Virtual datasets that may be each other's sources: HDF5 recurs into them, and ends the process in the end."""

_MOST_BLOCKS = 1 << 16
"""Blocks of a virtual dataset up to which it is looked whether they overlap, for which HDF5 keeps a list of them."""

_FILTERS = {
    4: "szip",
    307: "bzip2",
    32000: "lzf",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32026: "blosc2",
}
"""Names of filters that are not everywhere, some of which leave their own out."""

Slice = tuple[int, int, int, int]
"""Start, stride, count and block of a selection along one dimension."""

Region = tuple[Slice, ...]


@contextmanager
def opened_file(path: str) -> Iterator[Any]:
    """Open an HDF5 file for reading, unless it is open for writing elsewhere."""
    import h5py

    with open(path, "rb"):  # Python's errors say more than HDF5's when there is no such file
        pass
    try:
        file = h5py.File(path, "r")
    except OSError:
        if reason := why_in_use(path):
            raise UserError(reason) from None
        raise
    with file:
        yield file


def why_in_use(path: str) -> str:
    """Return the sentence about a file that another program writes, or has left as if it did; else nothing.

    HDF5 is not asked, which may crash on a damaged file: it locks files by flock, and from version 3 of their
    superblock on it marks those that are open for writing.
    """
    name = os.path.basename(path)
    if not os.path.isfile(path):  # a pipe would be waited for
        return ""
    try:
        with open(path, "rb") as file:
            head = file.read(12)
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return (
            f"'{name}' is open in another program: wait until that has closed it "
            "(or, where a file system has no locks, set HDF5_USE_FILE_LOCKING=FALSE)"
        )
    except OSError:  # no locks here
        return ""
    if head.startswith(_SIGNATURE) and len(head) == 12 and head[8] >= 3 and head[11] & _OPEN_FOR_WRITING:
        return (
            f"'{name}' is marked as open for writing: close it in the program that writes it, "
            f"or if that was killed, clear the mark with h5clear --status '{name}'"
        )
    return ""


def with_sources(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and, if it is virtual, those whose values it shows, all of which are there."""
    yield dataset
    if not dataset.is_virtual:
        return
    named = (_names(source, dataset.shape) for source in dataset.virtual_sources())
    for file_name, name in dict.fromkeys(itertools.chain.from_iterable(named)):
        with _source_file(dataset, file_name) as file:
            yield from with_sources(file[name])


def files_of(dataset: Any) -> Iterator[str]:
    """Yield the files that the values of a dataset lie in, of which none is missing."""
    for source in with_sources(dataset):
        yield source.file.filename
        folder = _external_folder(source)
        properties = source.id.get_create_plist()
        for j in range(properties.get_external_count()):
            yield os.path.join(folder, os.fsdecode(properties.get_external(j)[0]))


class Inspection:
    """Tells of which datasets not all values are there, looking at each once, however many virtual ones show it.

    It reads no values: HDF5 crashes on a virtual dataset that is its own source.
    """

    def __init__(self) -> None:
        self._known: dict[Any, str] = {}

    def why_unreadable(self, dataset: Any, above: tuple[Any, ...] = ()) -> str:
        """Return why the values of a dataset can't be had, or not all of them, with the remedy; nothing if they can.

        `above` are the virtual datasets that show it.
        """
        if dataset.id in above or len(above) > _DEEPEST:
            return f"is a virtual dataset of itself, or of virtual ones over {_DEEPEST} levels: copy the data into it"
        if dataset.id not in self._known:
            self._known[dataset.id] = self._why(dataset, above)
        return self._known[dataset.id]

    def _why(self, dataset: Any, above: tuple[Any, ...]) -> str:
        from h5py import h5d

        if not dataset.size:  # or None: it has no dimensions and no value
            return ""
        properties = dataset.id.get_create_plist()
        layout = properties.get_layout()
        if layout == h5d.VIRTUAL:
            return self._why_virtual(dataset, (*above, dataset.id))
        if properties.get_external_count():
            return _why_external(dataset, properties)
        if why := _why_packed(properties):
            return why
        if layout == h5d.CHUNKED:
            sides = zip(dataset.shape, dataset.chunks, strict=True)
            n_chunks = math.prod(-(-length // of_chunk) for length, of_chunk in sides)
            absent = n_chunks - dataset.id.get_num_chunks()
            if absent > 0:
                return f"lacks {absent} of its {n_chunks} chunks, which would read as fill values: write them"
        if layout == h5d.CONTIGUOUS and dataset.id.get_space_status() == h5d.SPACE_STATUS_NOT_ALLOCATED:
            return "was never written, and would read as fill values: write it"
        return ""

    def _why_virtual(self, dataset: Any, above: tuple[Any, ...]) -> str:
        mapped: list[Region] = []
        for source in dataset.virtual_sources():
            regions = _regions(source.vspace, dataset.shape)
            mapped += regions
            n_there = 0
            for file_name, name in _names(source, dataset.shape):
                of_file = "" if file_name == "." else f" of '{shown(file_name)}'"
                where = f"is virtual, and its source '{shown(name)}'{of_file}"
                try:
                    with _source_file(dataset, file_name) as file:
                        stored = file[name]
                        if why := self.why_unreadable(stored, above):
                            return why if why.startswith("is virtual") else f"{where} {why}"
                        n_there += _n_points(_regions(source.src_space, stored.shape))
                except (KeyError, OSError, AttributeError, UserError):
                    return f"{where} is not there, or can't be opened: put it back"
            if n_there < _n_points(regions):
                return f"{where} has only {count_of(n_there, 'value')} for {_n_points(regions)}: write them"
        absent = dataset.size - _n_covered(mapped, dataset.shape)
        return f"is virtual, and {absent} of its {dataset.size} values have no source: map them" if absent > 0 else ""


def _why_packed(properties: Any) -> str:
    """Return which filter is missing, of those that a dataset's chunks went through."""
    from h5py import h5z

    for j in range(properties.get_nfilters()):
        number, _, _, told = properties.get_filter(j)
        if not h5z.filter_avail(number):
            name = _FILTERS.get(number, "") or told.decode("utf-8", "replace") or "without a name"
            remedy = "set HDF5_PLUGIN_PATH to the folder of its plugin (pip install hdf5plugin), or write it with gzip"
            return f"is compressed with the filter '{shown(name)}' (number {number}), which HDF5 lacks here: {remedy}"
    return ""


def _why_external(dataset: Any, properties: Any) -> str:
    """Return which of the external files with a dataset's bytes is missing or too short."""
    folder = _external_folder(dataset)
    left = dataset.size * dataset.id.get_type().get_size()
    for j in range(properties.get_external_count()):
        name, offset, size = properties.get_external(j)
        name = os.fsdecode(name)
        path = os.path.join(folder, name)
        wanted = min(left, size)
        if not os.path.isfile(path):
            return f"lies in the file '{shown(name)}', which is not there: put it back"
        if os.path.getsize(path) < offset + wanted:
            n_bytes = os.path.getsize(path)
            return f"lies in the file '{shown(name)}', which has {n_bytes} bytes of {offset + wanted}: write it again"
        left -= wanted
    return ""


def _external_folder(dataset: Any) -> str:
    origin = os.path.dirname(os.path.abspath(dataset.file.filename))
    return os.environ.get("HDF5_EXTFILE_PREFIX", "").replace("${ORIGIN}", origin)


# ---------------------------------------------------------------------------------------------------------------------
# Virtual datasets


@contextmanager
def _source_file(dataset: Any, name: str) -> Iterator[Any]:
    """Open the file of a source, looking for it where HDF5 does."""
    if name == ".":
        yield dataset.file
        return
    beside = os.path.dirname(os.path.abspath(dataset.file.filename))
    prefixes = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", beside).split(":")
    names = [name, os.path.basename(name)] if os.path.isabs(name) else [name]
    paths = [os.path.join(folder, each) for each in names for folder in (*filter(None, prefixes), beside, "")]
    with opened_file(next(filter(os.path.isfile, paths), name)) as file:
        yield file


def _names(source: Any, shape: tuple[int, ...]) -> list[tuple[str, str]]:
    """Return the files and datasets of a source: those of a pattern (%b) are as many as the blocks they fill."""
    names = source.file_name, source.dset_name
    n_blocks = 1
    if any("%b" in name.replace("%%", "") for name in names):
        n_blocks = sum(math.prod(count for _, _, count, _ in region) for region in _regions(source.vspace, shape))
    return [(_numbered(names[0], j), _numbered(names[1], j)) for j in range(n_blocks)]


def _numbered(name: str, number: int) -> str:
    return "%".join(part.replace("%b", str(number)) for part in name.split("%%"))


def _regions(space: Any, shape: tuple[int, ...]) -> list[Region]:
    """Return the selection of a dataset, as far as it lies inside of it."""
    from h5py import h5s

    kind = space.get_select_type()
    if kind == h5s.SEL_ALL:
        return [tuple((0, 1, 1, length) for length in shape)]
    if kind != h5s.SEL_HYPERSLABS:
        return []
    if space.is_regular_hyperslab():
        selected = [list(zip(*space.get_regular_hyperslab(), strict=True))]
    else:
        corners = space.get_select_hyper_blocklist().tolist()
        selected = [[(a, 1, 1, b - a + 1) for a, b in zip(*block, strict=True)] for block in corners]
    parts = ([_inside(each, length) for each, length in zip(region, shape, strict=True)] for region in selected)
    return [region for of_region in parts for region in itertools.product(*of_region)]


def _inside(selected: Slice, length: int) -> list[Slice]:
    """Return a selection up to a length, maybe with a last block that is cut; counts and blocks may have no limit."""
    start, stride, count, block = (int(each) for each in selected)
    n_whole = min(count, (length - start - block) // stride + 1) if length - start >= block else 0
    parts = [(start, stride, n_whole, block)] if n_whole else []
    cut = start + n_whole * stride
    if n_whole < count and cut < length:
        parts.append((cut, 1, 1, length - cut))
    return parts


def _n_points(regions: Sequence[Region]) -> int:
    """Return how many values regions have, if they don't overlap."""
    return sum(math.prod(count * block for _, _, count, block in region) for region in regions)


def _n_covered(regions: Sequence[Region], shape: tuple[int, ...]) -> int:
    """Return how many values regions have together."""
    from h5py import h5s

    n_blocks = sum(math.prod(count for _, _, count, _ in region) for region in regions)
    if n_blocks > _MOST_BLOCKS or len(regions) == 1:
        return _n_points(regions)
    union = h5s.create_simple(shape)
    union.select_none()
    for region in regions:
        starts, strides, counts, blocks = zip(*region, strict=True)
        union.select_hyperslab(starts, counts, strides, blocks, op=h5s.SELECT_OR)
    return int(union.get_select_npoints())
