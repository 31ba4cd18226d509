"""Making things ahead of their use, in a background thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

_END = object()


class Prefetched:
    """An iterator whose items are made by a thread, at most `depth` ahead of the one in use.

    An error of the source is raised where its item would have come.  The thread ends with the
    source, with an error or with `close`, whichever is first.
    """

    def __init__(self, source: Iterator[Any], depth: int) -> None:
        self._items: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._closed = False
        self._thread = threading.Thread(
            target=self._work, args=(source,), name="prefetch", daemon=True
        )
        self._thread.start()

    def _work(self, source: Iterator[Any]) -> None:
        error = None
        try:
            while self._room.acquire() and not self._closed:
                item = next(source, _END)
                if item is _END:
                    break
                self._items.put((item, None))
        except BaseException as raised:  # noqa: BLE001 it is raised in the thread that waits
            error = raised
        self._items.put((_END, error))

    def __iter__(self) -> Prefetched:
        return self

    def __next__(self) -> Any:
        item, error = self._items.get()
        if item is not _END:
            self._room.release()
            return item
        self._items.put((_END, None))  # asking again after the end does not hang
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """End the thread; it has ended when this returns."""
        self._closed = True
        self._room.release()
        self._thread.join()
