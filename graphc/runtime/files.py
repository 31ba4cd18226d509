"""Files that appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from graphc.errors import GraphError


def cache_folder() -> Path:
    """Where graphc keeps what it can make anew: GRAPHC_CACHE_DIR, or the user's cache folder."""
    return Path(os.environ.get("GRAPHC_CACHE_DIR") or _user_folder())


@cache
def _user_folder() -> str:
    import platformdirs

    return platformdirs.user_cache_dir("graphc")


def write_atomically(path: Path, pieces: Iterable[Any], *, durable: bool = False) -> None:
    """Write a file that appears whole or not at all. Raises GraphError when it cannot.

    `durable` also survives a loss of power: the data reaches the disk before the name does.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            with suppress(OSError):  # some network disks have no locks
                fcntl.flock(file, fcntl.LOCK_EX)  # tells `remove_leftovers` that the writer lives
            for piece in pieces:
                file.write(piece)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            temporary.replace(path)
        if durable:
            _reach_disk(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise GraphError(f"cannot write {path}: {error.strerror}") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _reach_disk(folder: Path) -> None:
    """Flush a folder's list of names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove what killed writers of files that match `pattern` left in a folder."""
    for leftover in folder.glob(f".{pattern}.*.tmp"):
        try:
            with leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink(missing_ok=True)
        except OSError:
            continue  # its writer is at work, or it is not ours to remove
