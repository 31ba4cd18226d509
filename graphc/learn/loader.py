"""`gc.data.Loader`: samples in batches, in an order that is the same wherever it is continued.

loader = gc.data.Loader(source, batch=32, shuffle=True, seed=7)
for x, y in loader:            one epoch; the next `for` is the next epoch, in another order
    ...
    state = loader.state()     after k batches: `restore` goes on with batch k, bit for bit
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any, Protocol

import numpy as np

from graphc.errors import FeedError
from graphc.frontend.trace.tree import flatten, leaf_names, unflatten
from graphc.learn.prefetch import Prefetched
from graphc.runtime.call.foreign import foreign_array

Array = np.ndarray[Any, Any]
Which = slice | Array

_DEPTH = 2  # batches made ahead: one being finished while one waits


class Source(Protocol):
    """Where samples come from. `is_ready`: they lie in memory, so that handing a batch over from
    another thread would cost more than making it.
    """

    is_ready: bool

    def __len__(self) -> int: ...

    def rows(self, which: Which) -> Any:
        """The batch of these samples: a tree of contiguous arrays, samples along axis 0."""


class Items:
    """A dataset that gives one sample at a time: `dataset[k]` is a tree of arrays or numbers."""

    is_ready = False

    def __init__(self, dataset: Any) -> None:
        for method in ("__len__", "__getitem__"):
            if not hasattr(dataset, method):
                raise FeedError(
                    f"a loader cannot read {type(dataset).__name__}: it has no {method}",
                    hint="gc.data.arrays, images, text and lines make loaders",
                )
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def rows(self, which: Which) -> Any:
        numbers = range(len(self))[which] if isinstance(which, slice) else which.tolist()
        samples = [flatten(self._dataset[k]) for k in numbers]
        tree = samples[0][1]
        if any(other is not tree for _, other in samples):
            raise FeedError("the samples of a batch have different structures")
        columns = zip(*(leaves for leaves, _ in samples))
        names = leaf_names(tree)
        return unflatten(tree, [_stacked(n, c) for n, c in zip(names, columns)])


def _stacked(name: str, column: tuple[Any, ...]) -> Array:
    arrays = [np.asarray(leaf) for leaf in column]
    kinds = {(a.dtype, a.shape) for a in arrays}
    if len({shape for _, shape in kinds}) > 1:
        shapes = sorted({str(list(shape)) for _, shape in kinds})
        raise FeedError(
            f"{name or 'the samples'} of one batch have the shapes {', '.join(shapes[:4])}",
            hint="pad or crop them to one shape, or use batches of 1",
        )
    return native(checked(np.stack(arrays), name))


def checked(array: Array, name: str) -> Array:
    """The array itself. Raises FeedError for elements that no graph takes (text, objects)."""
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        raise FeedError(f"{name or 'the data'} has dtype {array.dtype}, batches hold numbers")
    return array


def native(array: Array) -> Array:
    """The array in this machine's byte order, with NumPy's own dtype object, as the native entry
    of compiled functions wants it: `newbyteorder` and some readers make dtypes that only equal it.
    """
    element = np.dtype(array.dtype.type)
    if array.dtype is element:
        return array
    return array.view(element) if array.dtype == element else array.astype(element)


def permutation(count: int, seed: int, epoch: int) -> Array:
    """0..count-1 in the order of random bits (Philox counters): equal on every NumPy version."""
    for what, number in (("count", count), ("seed", seed), ("epoch", epoch)):
        if not isinstance(number, int | np.integer) or not 0 <= number < 1 << 63:
            raise FeedError(f"{what} is a whole number from 0, not {number!r:.80}")
    bits = np.random.Philox(key=np.array([seed, epoch], np.uint64)).random_raw(int(count))
    return np.argsort(bits, kind="stable")


class Loader:
    """Batches of a source, epoch after epoch.

    source      a source of this module, or any dataset with __len__ and __getitem__
    batch       samples per batch; the last batch of an epoch is short, or left out (`drop_last`)
    shuffle     another order in every epoch, from `seed` and the number of the epoch alone
    prefetch    batches made ahead by a background thread; 0 for none.  By default 2, and none
                where the samples lie in memory
    transform   function of a batch, called in that thread

    Raises FeedError for a source without a whole batch.
    """

    def __init__(
        self,
        source: Any,
        batch: int = 32,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        prefetch: int | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        for name, value, least in (("batch", batch, 1), ("seed", seed, 0)):
            if type(value) is not int or not least <= value < 1 << 63:
                raise FeedError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if prefetch is not None and type(prefetch) is not int:
            raise FeedError(f"prefetch must be a whole number of batches, got {prefetch!r:.80}")
        if transform is not None and not callable(transform):
            raise FeedError(f"transform must be a function of a batch, got {transform!r:.80}")
        self.source: Source = source if hasattr(source, "rows") else Items(source)
        self.batch = batch
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.transform = transform
        waits = not self.source.is_ready or transform is not None
        self.prefetch = _DEPTH * waits if prefetch is None else max(0, prefetch)
        self.epoch = 0
        self.index = 0
        self._continues = False
        if not len(self):
            few = f"{len(self.source)} samples, batches of {batch}"
            raise FeedError(
                f"there is not one batch: {few}",
                hint="drop_last=False keeps a short last batch" if len(self.source) else None,
            )

    def __len__(self) -> int:
        """Batches per epoch."""
        whole, rest = divmod(len(self.source), self.batch)
        return whole + (rest > 0 and not self.drop_last)

    def order(self, epoch: int) -> Array | None:
        """The samples in the order of an epoch; None for their own order."""
        return permutation(len(self.source), self.seed, epoch) if self.shuffle else None

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch: what `restore` left of one, else the next whole one."""
        if self.index and not self._continues:
            self.epoch, self.index = self.epoch + 1, 0  # the last one was broken off
        self._continues = False
        return self._batches(self.epoch, self.index)

    def _batches(self, epoch: int, first: int) -> Iterator[Any]:
        order = self.order(epoch)
        made = (self._rows(order, k) for k in range(first, len(self)))
        with closing(Prefetched(made, self.prefetch) if self.prefetch else made) as stream:
            for k, rows in enumerate(stream, first):
                self.epoch, self.index = epoch, k + 1
                yield rows
        self.epoch, self.index = epoch + 1, 0

    def _rows(self, order: Array | None, number: int) -> Any:
        which = slice(number * self.batch, min((number + 1) * self.batch, len(self.source)))
        rows = self.source.rows(which if order is None else order[which])
        return rows if self.transform is None else self.transform(rows)

    def rewound(self) -> Loader:
        """A loader of the same batches that begins with epoch 0; this one stays where it is."""
        made = copy.copy(self)
        made.epoch, made.index, made._continues = 0, 0, False
        return made

    def _facts(self) -> dict[str, Any]:
        return {
            "samples": len(self.source),
            "batch": self.batch,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }

    def state(self) -> dict[str, Any]:
        """The position, as JSON: how many batches of which epoch have been handed out."""
        return {"epoch": self.epoch, "index": self.index, "seed": self.seed, **self._facts()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a position. Raises FeedError if it belongs to other data or batches."""
        if not isinstance(state, dict) or not {"epoch", "index", "seed"} <= state.keys():
            raise FeedError("this is no position of a loader", hint="restore what `state` gave")
        wrong = [
            f"{name} was {state.get(name)}, is {value}"
            for name, value in self._facts().items()
            if state.get(name) != value
        ]
        if wrong:
            raise FeedError(
                "the position belongs to another loader: " + "; ".join(wrong),
                hint="continue with the data and the batches that the run began with",
            )
        self.seed, self.epoch, self.index = state["seed"], state["epoch"], state["index"]
        self._continues = True


class Stream(Loader):
    """Batches that something else makes: a torch DataLoader, a generator, any iterable of them.

    source      an iterable, gone through again in each epoch; an iterator, which every epoch takes
                its `steps` batches from; or a function of no arguments that returns one of them
    steps       batches per epoch; by default all that there are

    Continued in the middle of an epoch, it passes over the batches that were handed out.
    """

    def __init__(self, source: Any, steps: int | None = None) -> None:
        if steps is not None and (type(steps) is not int or steps < 1):
            raise FeedError(f"steps must be a whole number of at least 1, got {steps!r}")
        self.iterable = source
        self.steps = steps
        self.seed = self.epoch = self.index = 0
        self._continues = False
        self._open: Iterator[Any] | None = None  # an iterator that several epochs share

    def __len__(self) -> int:
        """Batches per epoch; 0 where nobody can tell."""
        try:  # a DataLoader of what is only iterated over has a length that raises
            known = len(self.iterable)
        except TypeError:
            known = 0
        return min(known or self.steps, self.steps) if self.steps is not None else known

    def _batches(self, epoch: int, first: int) -> Iterator[Any]:
        made, count = self._iterator(), first
        for _ in range(first):
            next(made, None)
        for rows in islice(made, None if self.steps is None else self.steps - first):
            count += 1
            self.epoch, self.index = epoch, count
            yield tree_of_arrays(rows)
        if not count:
            raise FeedError(
                f"there is not one batch for epoch {epoch + 1}",
                hint="a generator ends with its first epoch: give a function that makes one, or "
                "steps= batches per epoch"
                if self._open is not None
                else "the data is empty, or leaves out a last batch that is short",
            )
        self.epoch, self.index = epoch + 1, 0

    def _iterator(self) -> Iterator[Any]:
        if self._open is not None:
            return self._open
        source = self.iterable() if callable(self.iterable) else self.iterable
        made: Iterator[Any] = iter(source)
        if made is self.iterable:
            self._open = made
        return made

    def _facts(self) -> dict[str, Any]:
        return {"steps": self.steps}


def tree_of_arrays(batch: Any) -> Any:
    """A batch with arrays of NumPy in the place of those of others. Raises FeedError."""
    leaves, tree = flatten(batch)
    return unflatten(tree, [native(checked(array_of(leaf), "a batch")) for leaf in leaves])


def array_of(leaf: Any) -> Array:
    """An array, a tensor of another library or a number as an array of NumPy."""
    return foreign_array(leaf) if hasattr(leaf, "__dlpack__") else np.asarray(leaf)
