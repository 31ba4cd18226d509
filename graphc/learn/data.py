"""`gc.data`: loaders for arrays, folders of images and text."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.base.hints import missing
from graphc.base.refusing import refuse_all
from graphc.errors import FeedError
from graphc.frontend.trace.tree import flatten, leaf_names, unflatten
from graphc.learn.images import images
from graphc.learn.loader import Loader, Which, array_of, checked, native, permutation
from graphc.learn.text import Bytes, Characters, lines, text, windows

__all__ = [
    "Arrays",
    "Bytes",
    "Characters",
    "Loader",
    "arrays",
    "images",
    "lines",
    "permutation",
    "text",
    "windows",
]


class Arrays:
    """Arrays that belong together, sample k being row k of each: any nesting, as in a batch.

    Rows in their own order are views; nothing is copied.  Raises FeedError where lengths differ.
    """

    is_ready = True

    def __init__(self, tree: Any) -> None:
        leaves, self._tree = flatten(tree, keep_order=True)
        names = leaf_names(self._tree)
        self._arrays = [checked(array_of(leaf), n) for n, leaf in zip(names, leaves)]
        if not self._arrays or not all(a.ndim for a in self._arrays):
            raise FeedError(
                "a loader needs arrays with samples along their first axis",
                hint="lists are nestings of arrays, not arrays: np.array(x) is one",
            )
        lengths = {name or "array": len(a) for name, a in zip(names, self._arrays)}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} has {n}" for name, n in list(lengths.items())[:6])
            raise FeedError(
                f"the arrays have different numbers of samples: {shown}",
                hint="a list of batches is given as an iterator or a function: lambda: batches"
                if isinstance(tree, list)
                else None,
            )

    def __len__(self) -> int:
        return len(self._arrays[0])

    def rows(self, which: Which) -> Any:
        """The samples of a slice or of an array of row numbers, nested as the arrays are."""
        return unflatten(self._tree, [_rows(array, which) for array in self._arrays])


def _rows(array: np.ndarray[Any, Any], which: Which) -> np.ndarray[Any, Any]:
    found = array[which] if isinstance(which, slice) else array.take(which, axis=0)
    return np.require(native(found), requirements=["C", "ALIGNED"])


def arrays(tree: Any, batch: int = 32, **options: Any) -> Loader:
    """Batches of arrays in memory (or mapped into it): `gc.data.arrays((x, y), 32, shuffle=True)`.

    The options are those of `Loader`.
    """
    return Loader(Arrays(tree), batch, **options)


refuse_all(__all__, globals())


def __getattr__(name: str) -> object:
    raise missing("graphc.data", name, __all__)
