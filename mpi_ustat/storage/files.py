"""Files that appear whole or not at all, and never over another file unless told."""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mpi_ustat.errors import UserError
from mpi_ustat.storage.texts import shown

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EXDEV, errno.EMLINK}
# Without files that have no name, and where /proc, through which they get one, is not mounted.
_NO_NAMELESS = _NO_HARD_LINKS | {errno.EINVAL, errno.EISDIR, errno.ENOENT}
# Python lets the kernel follow a symbolic link only if a folder is given, which doesn't matter for absolute paths.
_link_followed = functools.partial(os.link, src_dir_fd=0)
_locks: set[tuple[int, int]] = set()  # of this process
_ASIDE = re.compile(r"\.mpi_ustat-(?P<target>[0-9a-f]{8})-(?P<host>.+)-(?P<process>\d+)-[0-9a-f]{8}\.part")


def check_target(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Check that a file can be written at `path`, before any work is spent on its content.

    Raises
    ------
    UserError
        If the folder is missing or not writable, if `path` is a folder or a device, if its name is not possible on
        this file system, or if a file is there and may not be replaced (`overwrite`).
    """
    target = Path(path)
    folder = target.parent
    if not folder.is_dir():
        raise UserError(f"the folder of '{target}' does not exist: create '{folder}' or choose another output file")
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _as_user_error(target, error) from error
    else:
        if target.is_dir():
            raise UserError(f"the output '{target}' is a folder: give the name of a file in it")
        # Renaming over a device such as /dev/null would remove it for every process of the machine.
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise UserError(f"the output '{target}' is not a regular file: choose another output file")
        if not overwrite:
            raise _as_user_error(target, FileExistsError())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _as_user_error(target, PermissionError(errno.EACCES, "no access"))


def same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Tell whether two names are of one file, by any links to it or its folder; or would be, if it is yet to come."""
    with suppress(OSError):
        if os.path.samefile(first, second):
            return True
    with suppress(OSError):
        (folder, name), (other_folder, other_name) = (os.path.split(os.path.realpath(path)) for path in (first, second))
        return name == other_name and os.path.samefile(folder, other_folder)
    return False


def absolute(path: str) -> str:
    """Return a path that means the same wherever the process goes; no link in it is followed."""
    with suppress(OSError):  # the folder is gone
        return os.path.join(os.getcwd(), path)
    return path


def write_whole(path: str | os.PathLike[str], content: bytes, *, overwrite: bool = False) -> None:
    """Write `content` to `path`, as `written_whole` does, which says what is raised."""
    with written_whole(path, overwrite=overwrite) as file:
        file.write(content)


@contextmanager
def written_whole(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Give a file to write to, which gets its name `path` when the context ends without an error.

    So at any moment what is there is either nothing, as before, or complete. The bytes go to a file without a name,
    which gets the target's once they are safe on disk; so a process that is killed meanwhile leaves nothing behind.
    Where the file system has no such files, they go to a hidden one in the same folder, which is removed if anything
    goes wrong; what a killed process has left of it, the next run that writes the same target on the same host removes.

    Raises
    ------
    UserError
        For everything `check_target` refuses, for a file that another process created at `path` meanwhile, and for a
        full or failing disk.
    """
    target = Path(path)
    check_target(target, overwrite)
    own, host, process = _digest(target), os.uname().nodename[:64], os.getpid()
    # Short: the target's name may have maximal length.
    aside = target.parent / f".mpi_ustat-{own}-{host}-{process}-{secrets.token_hex(4)}.part"
    for left, used in left_aside(target.parent):
        if used is False and f"-{own}-" in left.name:
            with suppress(OSError):
                os.unlink(left)
    try:
        try:
            with _synced(aside) as file:
                yield file
            if overwrite:
                os.replace(aside, target)
            else:
                _rename_to_new(aside, target)
        finally:
            with suppress(OSError):
                os.unlink(aside)
    except OSError as error:
        raise _as_user_error(target, error) from error
    _sync_folder(target.parent)


def append(path: str | os.PathLike[str], content: bytes) -> None:
    """Add `content` to a file, safe on disk; unless the process is killed, all of it or nothing."""
    target = Path(path)
    try:
        with open(target, "ab", buffering=0) as file:
            length = os.fstat(file.fileno()).st_size
            try:
                left = memoryview(content)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except BaseException:
                with suppress(OSError):
                    file.truncate(length)
                raise
    except OSError as error:
        raise _as_user_error(target, error) from error


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other runs from writing a file, as long as the context lasts or the process lives.

    The lock is the kernel's, on a hidden file beside the target, as the target itself is replaced. What a killed
    process leaves of it locks nothing. Where the file system has no locks, or HDF5_USE_FILE_LOCKING says not to use
    them, there is none. A file that another run has locked is refused.
    """
    target = Path(path)
    lock = target.parent / f".mpi_ustat-{_digest(target)}.lock"
    off = os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0")
    descriptor = None if off else _locked(target, lock)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                os.unlink(lock)
            _locks.discard(_inode(os.fstat(descriptor)))
            os.close(descriptor)


def _locked(target: Path, lock: Path) -> int | None:
    """Return a descriptor of the lock, held by this process; None if there are no locks, or another user's is left."""
    while True:
        # The system lets a process have its own locks again, and takes them when it closes the file anywhere.
        with suppress(FileNotFoundError):
            if _inode(os.stat(lock)) in _locks:
                raise _in_use(target, lock, "of this process")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            return None
        try:
            # Not flock, whose locks a process that was forked would keep.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _inode(os.fstat(descriptor)) == _inode(os.stat(lock)):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename}".encode())
                _locks.add(_inode(os.fstat(descriptor)))
                return descriptor
        except FileNotFoundError:
            pass  # its holder has just left
        except OSError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace")
            os.close(descriptor)
            if isinstance(error, BlockingIOError | PermissionError):
                raise _in_use(target, lock, holder) from error
            return None
        os.close(descriptor)


def _in_use(target: Path, lock: Path, holder: str) -> UserError:
    return UserError(
        f"another run ({shown(holder)}) writes '{target}': wait for its end, stop it, or choose another name (if its "
        f"host is dead, remove {lock})"
    )


def _inode(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def left_aside(folder: Path) -> list[tuple[Path, bool | None]]:
    """Return the hidden files that `write_whole` keeps in a folder while it writes, and whether their writers run.

    That is false for what a killed process has left, and None for one on another host.
    """
    found: list[tuple[Path, bool | None]] = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            match = _ASIDE.fullmatch(entry.name)
            if match is not None:
                here = match["host"] == os.uname().nodename[:64]
                found.append((Path(entry.path), _runs(int(match["process"])) if here else None))
    return found


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        pass
    return True


def _digest(target: Path) -> str:
    return hashlib.blake2s(os.fsencode(target.name), digest_size=4).hexdigest()


@contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    """Give a file that has its name once its bytes are safe on disk, if the file system can do that, or else now."""
    descriptor = _nameless(path.parent)
    if descriptor is None:
        with _named(path) as file:
            yield file
            _sync(file)
        return
    with os.fdopen(descriptor, "w+b") as file:
        yield file
        _sync(file)
        try:
            _link_followed(f"/proc/self/fd/{descriptor}", path)
        except OSError as error:
            if error.errno not in _NO_NAMELESS:
                raise
            file.seek(0)
            with _named(path) as named:
                shutil.copyfileobj(file, named)
                _sync(named)


def _nameless(folder: Path) -> int | None:
    """Return a descriptor of a new file without a name; None where there are none."""
    kind = getattr(os, "O_TMPFILE", None)  # of Linux
    if kind is None:
        return None
    try:
        return os.open(folder, os.O_RDWR | kind, 0o666)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
    return None


def _named(path: Path) -> BinaryIO:
    """Create a file; not by tempfile, whose files are private to the user, whereas this one is to be like any new."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "w+b")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _rename_to_new(source: Path, target: Path) -> None:
    """Give `source` the name `target`, unless that name is taken: unlike a rename, a hard link never replaces."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # Without hard links the name is claimed by an empty file, which the rename then replaces.
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        try:
            os.replace(source, target)
        except BaseException:
            os.unlink(target)
            raise


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power failure, on file systems where a folder can be synced."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _as_user_error(target: Path, error: OSError) -> UserError:
    if isinstance(error, FileExistsError):
        return UserError(f"the output '{target}' exists: choose another name or give overwrite=True")
    if error.errno in _NO_SPACE:
        return UserError(f"'{target}' was not written because the disk is full: free some space or choose another disk")
    if error.errno in _FORBIDDEN:
        return UserError(f"'{target}' cannot be written because its folder is read-only: choose another output file")
    reason = error.strerror or str(error)
    return UserError(f"'{target}' cannot be written ({reason}): choose another output file")
