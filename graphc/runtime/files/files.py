"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from graphc.errors import GraphError

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def cache_folder() -> Path:
    """Where graphc keeps what it can make anew: GRAPHC_CACHE_DIR, or the user's cache folder."""
    return Path(os.environ.get("GRAPHC_CACHE_DIR") or _user_folder())


@cache
def _user_folder() -> str:
    import platformdirs

    return platformdirs.user_cache_dir("graphc")


def is_private(folder: Path) -> bool:
    """Whether a folder is the user's own, and nobody else may write to it."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def write_atomically(path: Path, pieces: Iterable[Any], *, durable: bool = False) -> None:
    """Write a file that appears whole or not at all. Raises GraphError when it cannot.

    `durable` also survives a loss of power: the data reaches the disk before the name does.
    """
    try:
        with new_file(path) as (file, temporary):
            for piece in pieces:
                file.write(piece)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            temporary.replace(path)
        if durable:
            _reach_disk(path.parent)
    except OSError as error:
        raise GraphError(f"cannot write {path}: {error.strerror}") from None


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write files that belong together: none appears before all are written.

    Raises GraphError where one cannot be.
    """
    with ExitStack() as stack:
        written = []
        for path, data in files.items():
            try:
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                file, temporary = stack.enter_context(new_file(path))
                file.write(data)
                file.flush()
            except OSError as error:
                raise GraphError(f"cannot write {path}: {error.strerror}") from None
            written.append((temporary, path))
        for temporary, path in written:
            temporary.replace(path)


def npz(arrays: Mapping[str, Any]) -> bytes:
    """Arrays as the bytes of an .npz file: `np.savez` takes none that is called "file"."""
    import zipfile

    import numpy as np

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def with_type(array: Any) -> Any:
    """An array that NumPy read: bf16, which it does not know, it writes as two bytes of no type."""
    from graphc.runtime.load.program import numpy_dtype

    return array.view(numpy_dtype("bf16")) if array.dtype == "V2" else array


@contextmanager
def new_file(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A locked file beside a path, open for writing, and its name, which the
    caller changes to that of the path; removed if the caller fails.

    Nobody else made it and no link leads elsewhere.  The usual name, `.NAME.tmp`, finds what a
    killed writer of this very file has left, and removes it; a writer that lives holds the lock.
    """
    usual = path.with_name(f".{path.name}.tmp")
    file = _created(usual)
    if file is None:
        _remove_leftover(usual)
        file = _created(usual)
    temporary = usual
    while file is None:
        temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
        file = _created(temporary)
    try:
        with file:
            yield file, temporary
    except BaseException:  # else it has another name by now, and this one may be somebody else's
        with suppress(OSError):
            temporary.unlink()
        raise


def _created(path: Path) -> BinaryIO | None:
    """A new file, locked; None if there is something of this name, or was just removed again."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666)
    except FileExistsError:
        return None
    file = os.fdopen(descriptor, "wb")
    with suppress(OSError):  # some network disks have no locks
        fcntl.flock(file, fcntl.LOCK_EX)  # tells `_remove_leftover` that the writer lives
    try:
        same = os.fstat(descriptor).st_ino == os.stat(path, follow_symlinks=False).st_ino
    except FileNotFoundError:
        same = False
    if not same:
        file.close()
    return file if same else None


def read_ordinary(path: Path) -> bytes:
    """What is in an ordinary file. Raises OSError for a pipe or device, which may never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no ordinary file", str(path))
        return file.read()


def _reach_disk(folder: Path) -> None:
    """Flush a folder's list of names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove what killed writers of files that match `pattern` left in a folder."""
    for leftover in (*folder.glob(f".{pattern}.tmp"), *folder.glob(f".{pattern}.*.tmp")):
        _remove_leftover(leftover)


def _remove_leftover(path: Path) -> None:
    """Remove a temporary file whose writer is gone."""
    with suppress(OSError):  # its writer is at work, or it is not ours to remove
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK)
        with os.fdopen(descriptor, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
