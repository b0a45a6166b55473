"""What killed jobs leave outside the folders of their results: shared memory, and files of the launcher."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SHARED = Path("/dev/shm")
_KNOWN = {
    SHARED: re.compile(r"mpich_shm_|ucx_shm_posix_|(vader|sm)_segment\."),  # of MPICH, UCX, Open MPI
    Path("/tmp"): re.compile(r"hydra_hwloc_xmlfile_"),  # wherever TMPDIR is
}
_MAPPED = re.compile(r"^\S+ \S+ \S+ \S+ \d+ +(/\S+)$", re.MULTILINE)


def stale_files() -> list[Path]:
    """Return the files of this user's MPI jobs on this host that no living process has open or mapped, latest first."""
    found: dict[Path, float] = {}
    for folder, names in _KNOWN.items():
        with suppress(OSError):
            for entry in [each for each in os.scandir(folder) if names.match(each.name)]:
                with suppress(FileNotFoundError):  # its job has just removed it
                    state = entry.stat(follow_symlinks=False)
                    if state.st_uid == os.getuid():
                        found[Path(entry.path)] = state.st_mtime
    used = set(_used()) if found else set()
    return sorted((path for path in found if str(path) not in used), key=lambda path: -found[path])


def _used() -> Iterator[str]:
    """Yield what processes have open or mapped, of those that this user may look at."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in os.scandir(process / "fd"):
                with suppress(OSError):
                    yield os.readlink(descriptor.path)
        with suppress(OSError):
            yield from _MAPPED.findall((process / "maps").read_text(errors="replace"))
