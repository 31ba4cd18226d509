"""The resources of this process, by the texts that say all about them."""

from __future__ import annotations

import json
from collections.abc import Callable

from graphc.errors import RunError
from graphc.runtime.input.resources import Arrays, Resource

_table: dict[str, Resource] = {}


def find(text: str) -> Resource:
    """The resource of a text, made when it is asked for first. Raises RunError for no such kind."""
    found = _table.get(text)
    if found is None:
        made = _made(text)
        found = _table.setdefault(text, made)
        if found is not made:  # another thread was first
            made.close()
    return found


def _made(text: str) -> Resource:
    """A new resource. No lock is held meanwhile: whatever is made may have the collector drop
    another one, in this thread."""
    settings = json.loads(text)
    settings.pop("name")
    maker = _maker(settings.pop("is"))
    if maker is None:
        raise RunError("a program calls a resource of a kind that there is not")
    return maker(**settings)


def _maker(kind: str) -> Callable[..., Resource] | None:
    from graphc.runtime.input.queues import Queue
    from graphc.runtime.input.readers import Reader

    return {"queue": Queue, "reader": Reader}.get(kind)


def drop(text: str) -> None:
    """Close a resource and forget it."""
    found = _table.pop(text, None)
    if found is not None:
        found.close()


def call(text: str, method: str, arrays: Arrays) -> Arrays:
    """Call a resource. Raises EndOfData, and RunError for what went wrong there."""
    return find(text).call(method, arrays)
