"""A set of what is still in use, which threads may walk over while others add to it.

`weakref.WeakSet` must not change meanwhile: a walk over it is many steps of Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class WeakSet(Generic[T]):
    """Objects that go with their last user; a walk sees those that were here when it began."""

    def __init__(self) -> None:
        self._by_id: WeakValueDictionary[int, T] = WeakValueDictionary()

    def add(self, item: T) -> None:
        self._by_id[id(item)] = item

    def __iter__(self) -> Iterator[T]:
        references = self._by_id.valuerefs()  # a copy, made in one step
        return iter([item for find in references if (item := find()) is not None])
