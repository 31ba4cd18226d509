"""`Queue`: items that wait for those who need them, in one of four orders.

    fifo        first in, first out
    shuffle     one of the first `window` items that are left, by the bits of `seed`: the order does
                not depend on who was faster
    priority    the smallest priority first, of equal ones the first; integers and floats mix
    bucket      rows of `dequeue_many` are of one range of lengths: the range that has enough first

An item is a tuple of arrays of fixed types.  Enqueuing waits for space, dequeuing for items.  After
`close` nothing is added, and what is left is handed out; then the data is at its end.
"""

from __future__ import annotations

import heapq
import math
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from graphc.errors import RunError
from graphc.runtime.input.resources import Array, Arrays, columns_of, ended, wait_for

Item = tuple[Array, ...]
_NUMBERS_OF_A_COUNTER = 4  # of Philox


class Fifo:
    """The order of arrival."""

    drawn = 0  # random numbers so far

    def __init__(self) -> None:
        self.items: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self.items)

    def add(self, item: Item, key: float) -> None:
        self.items.append(item)

    def ready(self, count: int, closed: bool) -> bool:
        """Can so many items be taken?"""
        return len(self.items) >= count

    def take(self, count: int) -> list[Item]:
        return [self.items.popleft() for _ in range(count)]

    def listed(self) -> Iterable[tuple[Item, float]]:
        """Items and their keys; added to an empty one in this order they are as they are here."""
        return [(item, 0) for item in self.items]

    def skip(self, drawn: int) -> None:
        """Go on as after so many random numbers."""


class Shuffle(Fifo):
    """One of the first `window` that are left, drawn by Philox counters: one number an item."""

    def __init__(self, window: int, seed: int) -> None:
        super().__init__()
        self.window, self.seed = window, seed
        self.skip(0)

    def ready(self, count: int, closed: bool) -> bool:
        return len(self.items) >= (count if closed else self.window + count - 1)

    def take(self, count: int) -> list[Item]:
        made = []
        for _ in range(count):
            k = int(self.bits.random_raw() % min(self.window, len(self.items)))
            made.append(self.items[k])
            del self.items[k]
        self.drawn += count
        return made

    def skip(self, drawn: int) -> None:
        self.bits = np.random.Philox(key=np.array([self.seed, 0], np.uint64))
        self.bits.advance(drawn // _NUMBERS_OF_A_COUNTER)
        self.bits.random_raw(drawn % _NUMBERS_OF_A_COUNTER)
        self.drawn = drawn


class Priority(Fifo):
    """The smallest key first."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Item]] = []
        self.count = 0

    def __len__(self) -> int:
        return len(self.heap)

    def add(self, item: Item, key: float) -> None:
        if key != key:
            raise RunError("a priority is NaN, which is neither before nor behind another")
        heapq.heappush(self.heap, (key, self.count, item))
        self.count += 1

    def ready(self, count: int, closed: bool) -> bool:
        return len(self.heap) >= count

    def take(self, count: int) -> list[Item]:
        return [heapq.heappop(self.heap)[2] for _ in range(count)]

    def listed(self) -> Iterable[tuple[Item, float]]:
        ordered = sorted(self.heap, key=lambda row: row[:2])
        return [(item, key) for key, _, item in ordered]


class Buckets(Fifo):
    """Keys are lengths: what is taken together is of one range, which ends with a boundary."""

    def __init__(self, boundaries: Sequence[int]) -> None:
        self.boundaries = list(boundaries)
        self.rows: list[deque[Item]] = [deque() for _ in boundaries]

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    def add(self, item: Item, key: float) -> None:
        if not 0 <= key <= self.boundaries[-1]:
            raise RunError(
                f"a length of {key} is in no bucket", hint=f"they end with {self.boundaries}"
            )
        self.rows[bisect_left(self.boundaries, key)].append(item)

    def ready(self, count: int, closed: bool) -> bool:
        return any(len(row) >= count for row in self.rows)

    def take(self, count: int) -> list[Item]:
        place = next(k for k, row in enumerate(self.rows) if len(row) >= count)
        bound = np.array(self.boundaries[place], np.int64)
        return [(*self.rows[place].popleft(), bound) for _ in range(count)]

    def listed(self) -> Iterable[tuple[Item, float]]:
        pairs = zip(self.boundaries, self.rows, strict=True)
        return [(item, bound) for bound, row in pairs for item in row]


class Queue:
    """Items in one of the orders above, and those who wait."""

    def __init__(
        self,
        order: str,
        capacity: int,
        columns: Sequence[Sequence[Any]],
        window: int = 1,
        seed: int = 0,
        boundaries: Sequence[int] = (),
    ) -> None:
        orders: dict[str, Callable[[], Fifo]] = {
            "fifo": Fifo,
            "shuffle": lambda: Shuffle(window, seed),
            "priority": Priority,
            "bucket": lambda: Buckets(boundaries),
        }
        self.columns = columns_of(columns)
        self.empty = orders[order]
        self.order = self.empty()
        self.has_key = order in ("priority", "bucket")
        self.capacity = capacity
        self.is_closed = self.is_cancelled = False
        self.changed = threading.Condition()

    def call(self, method: str, arrays: Arrays) -> Arrays:
        if method == "enqueue":
            key = arrays[-1].item() if self.has_key else 0
            items = zip(self.columns, arrays, strict=not self.has_key)
            self.enqueue(tuple(column.fitted(array) for column, array in items), key)
            return ()
        if method == "size":
            return (np.array(self.size, np.int64),)
        if method == "close":
            self.close()
            return ()
        if method == "contents":
            return self.contents()
        if method == "restore":
            self.restore(arrays)
            return ()
        count = int(arrays[0])
        made = [np.stack(column) for column in zip(*self.dequeue(count))]
        return [column[0] for column in made] if method == "dequeue" else made

    @property
    def size(self) -> int:
        with self.changed:
            return len(self.order)

    def enqueue(self, item: Item, key: float = 0) -> None:
        """Add an item when there is space. Raises RunError for a queue that is closed."""
        with self.changed:
            wait_for(self.changed, lambda: self.is_closed or len(self.order) < self.capacity)
            if self.is_closed:
                raise RunError("the queue is closed: nothing can be added")
            self.order.add(item, key)
            self.changed.notify_all()

    def dequeue(self, count: int) -> list[Item]:
        """Take items when there are so many. Raises EndOfData where there will not be."""
        with self.changed:
            wait_for(self.changed, lambda: self.is_closed or self.order.ready(count, False))
            if self.is_cancelled or not self.order.ready(count, self.is_closed):
                raise ended("the queue")
            made = self.order.take(count)
            self.changed.notify_all()
            return made

    def contents(self) -> Arrays:
        """The arrays of items, with rows for as many as there is room for; their keys, rounded and
        what is left of integers; the number of items, whether it is closed, whether it is
        cancelled, and how many random numbers were drawn."""
        with self.changed:
            listed = list(self.order.listed())
            flags = self.is_closed, self.is_cancelled
            state = np.array([len(listed), *flags, self.order.drawn], np.int64)
        keys = np.zeros((self.capacity, 2))
        columns = [np.zeros((self.capacity, *c.shape), c.dtype) for c in self.columns]
        for row, (item, key) in enumerate(listed):
            keys[row] = key, key - int(float(key)) if isinstance(key, int) else 0
            for column, array in zip(columns, item, strict=True):
                column[row] = array
        return [*columns, keys, state]

    def restore(self, arrays: Arrays) -> None:
        """Be as `contents` said. Raises RunError for what it cannot have said."""
        *columns, keys, state = arrays
        count, closed, cancelled, drawn = state.tolist()
        if not 0 <= count <= self.capacity or drawn < 0:
            raise RunError(f"a queue of {self.capacity} never has had {count} items, {drawn} drawn")
        order = self.empty()
        order.skip(drawn)
        if order.drawn != drawn or not 0 <= cancelled <= closed <= 1:
            raise RunError(
                f"no queue of this order is in the state {state.tolist()}",
                hint="items, whether it is closed and cancelled (0 or 1), random numbers drawn",
            )
        fitted = [c.fitted(array) for c, array in zip(self.columns, columns, strict=True)]
        for row, (near, rest) in enumerate(keys[:count].tolist()):
            key = int(near) + int(rest) if rest and math.isfinite(near + rest) else near
            order.add(tuple(column[row].copy() for column in fitted), key)
        with self.changed:
            self.order, self.is_closed, self.is_cancelled = order, bool(closed), bool(cancelled)
            self.changed.notify_all()

    def close(self, cancel: bool = False) -> None:
        """Nothing is added from now on; with `cancel` nothing is handed out, either."""
        with self.changed:
            self.is_closed = True
            self.is_cancelled |= cancel
            self.changed.notify_all()
