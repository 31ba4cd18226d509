"""Compiled files with another header."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphc.errors import GraphError
from graphc.runtime.files.gcx_reader import digest

Document = dict[str, Any]


def edited(path: Path, change: Callable[[Document, Document], object], signed: bool = True) -> None:
    """Change a file's header and its metadata, and if that can be, sign what it has then."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + length])
    metadata = json.loads(entries["__metadata__"]["graphc"])
    change(entries, metadata)

    def write() -> None:
        entries["__metadata__"]["graphc"] = json.dumps(metadata)
        text = json.dumps(entries).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])

    write()
    if signed:
        with contextlib.suppress(GraphError, LookupError, TypeError):
            metadata["digest"] = digest(metadata)
        write()
