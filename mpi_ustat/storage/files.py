"""Files that appear whole or not at all, and never over another file unless told."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from mpi_ustat.errors import UserError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EXDEV, errno.EMLINK}


def check_target(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Check that a file can be written at `path`, before any work is spent on its content.

    Parameters
    ----------
    path : path-like
        The file to be written.
    overwrite : bool
        Whether a file that is already there may be replaced.

    Raises
    ------
    UserError
        If the folder is missing or not writable, if `path` is a folder or a device, if its name is not possible on
        this file system, or if a file is there and `overwrite` is false.
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
        _check_existing(target, mode, overwrite)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"'{target}' cannot be written because its folder is read-only: choose another output file")


def _check_existing(target: Path, mode: int, overwrite: bool) -> None:
    if target.is_dir():
        raise UserError(f"the output '{target}' is a folder: give the name of a file in it")
    # Renaming over a device such as /dev/null would remove it for every process of the machine.
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise UserError(f"the output '{target}' is not a regular file: choose another output file")
    if not overwrite:
        raise UserError(f"the output '{target}' exists: choose another name or give --overwrite")


def write_whole(path: str | os.PathLike[str], content: bytes, *, overwrite: bool = False) -> None:
    """Write `content` to `path`, so that at any moment the file is either absent, as before, or complete.

    The bytes go to a hidden file in the same folder, which takes the target's name once they are safe on disk, and is
    removed if anything goes wrong.

    Parameters
    ----------
    path : path-like
        The file to be written.
    content : bytes
        All of it.
    overwrite : bool
        Whether a file that is already there may be replaced.

    Raises
    ------
    UserError
        For everything `check_target` refuses, for a file that another process created at `path` meanwhile, and for a
        full or failing disk.
    """
    target = Path(path)
    check_target(target, overwrite)
    aside = (
        target.parent / f".mpi_ustat-{secrets.token_hex(8)}.part"
    )  # short: the target's name may have maximal length
    try:
        try:
            _write_synced(aside, content)
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


def _write_synced(path: Path, content: bytes) -> None:
    # Not tempfile: its files are private to the user, whereas this one is to have the permissions of any new file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
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
        return UserError(f"the output '{target}' exists: choose another name or give --overwrite")
    if error.errno in _NO_SPACE:
        return UserError(f"'{target}' was not written because the disk is full: free some space or choose another disk")
    if error.errno in _FORBIDDEN:
        return UserError(f"'{target}' cannot be written because its folder is read-only: choose another output file")
    reason = error.strerror or str(error)
    return UserError(f"'{target}' cannot be written ({reason}): choose another output file")
