"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphc.errors import GraphError


def write_atomically(path: Path, pieces: Iterable[Any]) -> None:
    """Write a file that appears whole or not at all. Raises GraphError when it cannot."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise GraphError(f"cannot write {path}: {error.strerror}") from None
