"""`gc.Queue` and `gc.Reader`: data that comes to a program where it is needed.

    queue = gc.Queue({"x": gc.spec((784,), "f32")}, capacity=64, order="shuffle", seed=1)
    reader = gc.Reader("train-*.npz", {"x": gc.spec((784,), "f32")}, batch=32, epochs=2)

In a compiled function their methods are calls of the process that runs them; outside they act at
once.
"""

from __future__ import annotations

import itertools
import json
import os
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.refusing import refusing
from graphc.errors import GraphError
from graphc.frontend.session.variable import Variable
from graphc.frontend.trace.tree import TreeDef, flatten, leaf_names, unflatten
from graphc.ir.types import Type, dtype
from graphc.ir.user_lines import locate
from graphc.learn.images import ENDINGS
from graphc.learn.trees import matched
from graphc.ops.control.resource import RESOURCE, keepers
from graphc.ops.record.value import element_of, emit, is_python_number
from graphc.ops.record.value import functions as f
from graphc.runtime.input import resource_table
from graphc.runtime.input.resources import suits

keepers.append(resource_table.call)
ORDERS = ("fifo", "shuffle", "priority", "bucket")
SUFFIXES = {".npz": "npz", ".csv": "csv", ".parquet": "parquet", ".tfrecord": "tfrecord"}
SUFFIXES |= dict.fromkeys(ENDINGS, "image")
_numbers = itertools.count()
Kinds = Sequence[tuple[str, tuple[int, ...]]]  # dtypes and shapes


def _refuse(problem: str, hint: str | None = None) -> GraphError:
    return GraphError(problem, hint=hint, location=locate(3))


class _Resource:
    """What programs know by a text."""

    text: str

    def _describe(self, what: str, columns: Any, **settings: Any) -> None:
        """Keep the text; the resource goes when nobody has this object any more."""
        specs, self.tree = flatten(columns, keep_order=True)
        for spec in specs:
            if not isinstance(spec, Type) or not spec.is_static:
                raise _refuse(
                    f"the arrays of a {what} are described by specs of known shapes, not {spec!r}",
                    'gc.spec(shape, "f32"), or a nesting of them',
                )
        self.names = names = [name or "value" for name in leaf_names(self.tree)]
        self.kinds = [(spec.dtype.name, tuple(spec.shape)) for spec in specs]
        listed = [
            (name, np.dtype(spec.dtype.numpy).name, spec.shape) for name, spec in zip(names, specs)
        ]
        name = f"{what} {os.getpid()}.{next(_numbers)}"
        found = {"is": what, "name": name, "columns": listed, **settings}
        self.text = json.dumps(found)
        if len(self.text) > 4096:
            raise _refuse(f"the settings of the {what} are too long", "name files by a pattern")
        weakref.finalize(self, resource_table.drop, self.text).atexit = False

    def _call(self, method: str, operands: Sequence[Any], kinds: Kinds) -> list[Any]:
        made = emit(
            RESOURCE,
            *operands,
            resource=self.text,
            method=method,
            dtypes=tuple(kind for kind, _ in kinds),
            ranks=tuple(len(shape) for _, shape in kinds),
            dims=tuple(n for _, shape in kinds for n in shape),
        )
        return list(made) if isinstance(made, tuple) else [made]


class Queue(_Resource):
    """Items that wait for those who need them.

    specs       gc.spec(shape, dtype) of an item, any nesting of them
    capacity    enqueuing waits while there are so many items
    order       "fifo"; "shuffle": one of the first `window` items by the bits of `seed`, whoever
                was faster; "priority": the smallest first; "bucket": what is taken together has
                lengths of one range
    window      items that "shuffle" chooses from: the capacity, if not given
    boundaries  the greatest length of each bucket, rising

    Methods work in compiled functions, where they are in line with other calls of this queue, and
    outside of them.  Each process has a queue of its own.  Raises GraphError for bad arguments.
    """

    @refusing
    def __init__(
        self,
        specs: Any,
        capacity: int = 64,
        order: str = "fifo",
        *,
        window: int | None = None,
        seed: int = 0,
        boundaries: Sequence[int] = (),
    ) -> None:
        if order not in ORDERS:
            raise _refuse(f"the order of a queue is {', '.join(ORDERS)}, not {order!r}")
        window = capacity if window is None else window
        boundaries = _whole(boundaries, "boundaries")
        for what, number in (("capacity", capacity), ("window", window), ("seed", seed)):
            _whole([number], what)
        if capacity < 1 or not 1 <= window <= capacity or not 0 <= seed < 1 << 63:
            raise _refuse(
                "a queue has room for one item or more, a window in it, and a seed from 0"
            )
        if (order == "bucket") != bool(boundaries):
            raise _refuse("an order of buckets, and no other, has boundaries")
        if boundaries != sorted({*boundaries}) or min(boundaries, default=0) < 0:
            raise _refuse(
                f"boundaries are lengths, from 0 and rising, not {boundaries}",
                "the greatest length of each bucket: boundaries=(16, 64, 256)",
            )
        self.order, self.capacity = order, capacity
        self._describe(
            "queue",
            specs,
            order=order,
            capacity=capacity,
            window=window,
            seed=seed,
            boundaries=boundaries,
        )

    def enqueue(self, item: Any, key: Any = None) -> None:
        """Add an item, when there is space.

        key   for a queue of such an order its priority, a real number that is not NaN, or its
              length, an integer
        Integers are taken where the dtype of the queue holds them, floats are rounded to its
        precision, and bools are 0 and 1.  Raises GraphError for arrays of other shapes or of
        another kind of numbers, and RunError for numbers that do not fit and when the queue is
        closed.
        """
        if (key is None) == (self.order in _KEYS):
            raise _refuse(
                f"an item of a queue of order {self.order!r} has {_KEYS.get(self.order, 'no key')}"
            )
        given = zip(self.names, matched(self.tree, item, "items"), self.kinds, strict=True)
        leaves = [_typed(name, x, kind, shape) for name, x, (kind, shape) in given]
        if key is not None:
            leaves.append(_typed(_KEYS[self.order], key, _KEY_KINDS[self.order], ()))
        self._call("enqueue", leaves, ())

    def dequeue(self) -> Any:
        """An item, when there is one. Raises EndOfData when the queue is closed and empty."""
        return self._taken("dequeue", 1, self._kinds_of_items())

    def dequeue_many(self, count: int) -> Any:
        """So many items, when there are, each array with a new first axis.

        Of a queue of buckets (item, bounds): how long items of its bucket may be.  Raises EndOfData
        when the queue is closed and has fewer.
        """
        _whole([count], "count")
        if not 1 <= count <= self.capacity:
            raise _refuse(f"a queue of {self.capacity} never has {count} items")
        kinds = [(kind, (count, *shape)) for kind, shape in self._kinds_of_items()]
        return self._taken("dequeue_many", count, kinds)

    def size(self) -> Any:
        """How many items there are, an i64."""
        return self._call("size", (), [("i64", ())])[0]

    def close(self) -> None:
        """Nothing is added from now on; those who wait for items that never come get EndOfData."""
        self._call("close", (), ())

    def contents(self) -> Any:
        """All that is in it, as a dict of arrays for a checkpoint: "items" in rows, of which there
        are as many as there is room for, their "keys" and the "state". A program that asks for them
        on another device gets those of the queue there."""
        return unflatten(self._tree_of_contents(), self._call("contents", (), self._all_kinds()))

    def restore(self, contents: Any) -> None:
        """Have in it what `contents` has said, of this queue or of one that is made likewise; what
        is in it now is gone.

        Raises TraceError for another nesting of arrays, GraphError for arrays of other shapes or
        another kind of numbers, and RunError for what no queue has said.
        """
        given = matched(self._tree_of_contents(), contents, "contents")
        names = [*self.names, "keys", "state"]
        kinds = zip(names, given, self._all_kinds(), strict=True)
        leaves = [_typed(name, x, kind, shape) for name, x, (kind, shape) in kinds]
        self._call("restore", leaves, ())

    def _tree_of_contents(self) -> TreeDef:
        places = unflatten(self.tree, [0] * len(self.kinds))
        return flatten({"items": places, "keys": 0, "state": 0}, keep_order=True)[1]

    def _all_kinds(self) -> Kinds:
        """Of what `contents` has: items and, of each, its key; how many, flags, numbers drawn."""
        rows = [(kind, (self.capacity, *shape)) for kind, shape in self.kinds]
        return [*rows, ("f64", (self.capacity, 2)), ("i64", (4,))]

    def cancel(self) -> None:
        """Close it and hand out nothing more. Not for compiled functions."""
        resource_table.find(self.text).close(cancel=True)  # type: ignore[call-arg]

    def _kinds_of_items(self) -> Kinds:
        return [*self.kinds, ("i64", ())] if self.order == "bucket" else self.kinds

    def _taken(self, method: str, count: int, kinds: Kinds) -> Any:
        made = self._call(method, [np.array(count, np.int64)], kinds)
        item = unflatten(self.tree, made[: len(self.kinds)])
        return (item, made[-1]) if self.order == "bucket" else item


def _whole(numbers: Any, what: str) -> list[int]:
    """Whole numbers as those of Python. Raises GraphError for others."""
    listed = list(numbers) if isinstance(numbers, Iterable) else [numbers, None]
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in listed):
        raise _refuse(f"{what}: whole numbers are expected, not {listed[0]!r:.80}")
    return [int(n) for n in listed]


_KEYS = {"priority": "a key, its priority", "bucket": "a key, its length"}
_KEY_KINDS = {"priority": "f64", "bucket": "i64"}


def _typed(name: str, x: Any, kind: str, shape: tuple[int, ...]) -> Any:
    """An operand in the dtype that it has: whether its numbers fit turns out when it is there."""
    if is_python_number(x):
        x = np.asarray(x)
    given, wanted = element_of(x)[0], dtype(kind)
    if not suits(np.dtype(given.numpy), np.dtype(wanted.numpy)):
        raise _refuse(
            f"{name}: numbers of {given.name} are not taken for {wanted.name}",
            f"say what becomes of them: gc.astype(x, {wanted.name!r})",
        )
    made = f.astype(x, given)
    if tuple(made.shape) != shape:
        raise _refuse(f"{name}: it has the shape {shape}, not {tuple(made.shape)}")
    return made


class Reader(_Resource):
    """Batches of rows out of files, which the process that runs `next` reads, ahead of it.

    files     a path or pattern, or several; they are looked for where they are read
    specs     gc.spec(shape, dtype) of one row of each array, by the names in the files
    batch     rows of a batch; the rows behind the last whole batch of all epochs are left out
    format    "npz", "csv", "parquet", "tfrecord", "image" or "bytes", if endings do not say it
    epochs    how often all is read, None for ever
    shuffle   files, and the rows of each, come in another order in each epoch, from `seed` alone
    ahead     batches that wait
    part      (k, n): of n readers this one has the rows k, k + n, k + 2n ... of each file, or the
              files where each is one row

    `place` is a variable, (epoch, file, row): it is read and assigned by `next`, saved in
    checkpoints and put back with all others.  Raises GraphError for bad arguments.
    """

    @refusing
    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        specs: Any,
        batch: int = 32,
        *,
        format: str | None = None,
        epochs: int | None = 1,
        shuffle: bool = False,
        seed: int = 0,
        ahead: int = 2,
        part: tuple[int, int] = (0, 1),
        name: str | None = None,
    ) -> None:
        paths = _files(files)
        known = {SUFFIXES.get(Path(path).suffix) for path in paths}
        format = format or (next(iter(known)) if len(known) == 1 else None)
        if format not in (*SUFFIXES.values(), "bytes"):
            raise _refuse(f"the format of {paths[0]} is not known", 'format="npz", or another')
        k, n = found if len(found := _whole(part, "part")) == 2 else (1, 0)
        for what, number in (("batch", batch), ("ahead", ahead), ("seed", seed)):
            _whole([number], what)
        if batch < 1 or ahead < 1 or not 0 <= k < n or not 0 <= seed < 1 << 63:
            raise _refuse("batch and ahead are 1 or more, part is (k, n) with k < n, seed from 0")
        if epochs is not None and _whole([epochs], "epochs")[0] < 1:
            raise _refuse(f"files are read once or more, not {epochs} times")
        self.batch = batch
        self._describe(
            "reader",
            specs,
            files=paths,
            format=format,
            batch=batch,
            epochs=epochs or 0,
            shuffle=bool(shuffle),
            seed=seed,
            ahead=ahead,
            part=k,
            parts=n,
        )
        self.place = Variable(np.zeros(3, np.int64), name=name)

    def next(self) -> Any:
        """The next batch: arrays with a new first axis, in the nesting of the specs.

        Raises EndOfData behind the last one, and RunError for a file that cannot be read.
        """
        kinds = [("i64", (3,)), *((kind, (self.batch, *shape)) for kind, shape in self.kinds)]
        behind, *made = self._call("next", [self.place.value], kinds)
        self.place.assign(behind)
        return unflatten(self.tree, made)


def _files(given: Any) -> list[str]:
    listed = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(listed, Sequence) or not listed:
        raise _refuse(f"a reader reads one file or more, got {given!r:.80}")
    if not all(isinstance(path, str | os.PathLike) for path in listed):
        raise _refuse(f"files are named by paths or patterns, not by {given!r:.80}")
    return [os.path.abspath(os.fspath(path)) for path in listed]
