"""Synchronous data parallelism with parameters on every device: only gradients travel.

    shard=False           gradients -> all_reduce -> every device updates its copy
    shard=True            gradients -> reduce_scatter -> every device updates its share
                          of the parameters, with its share of what the optimiser keeps
                          -> all_gather -> copies on all devices
    shard="parameters"    shares of the parameters -> all_gather -> copies for this step
                          -> gradients -> reduce_scatter -> every device updates its share

These are the stages of ZeRO (Rajbhandari et al., 2020), with the same bytes on their way: the
second divides what an optimiser keeps (two arrays of each parameter for Adam) and the sums of
gradients by the number of devices, the third the parameters, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.frontend.compile.decorator import compile
from graphc.frontend.session.variable import Variable
from graphc.frontend.trace.placement import device
from graphc.frontend.trace.tree import flatten, unflatten
from graphc.frontend.transforms.grad import value_and_grad
from graphc.learn.arguments import function_of, optimiser_of, team
from graphc.learn.batches import cut_rows, rows_of
from graphc.learn.collectives import all_gather, all_reduce, reduce_scatter, reduce_to
from graphc.learn.optim import Optimiser
from graphc.learn.trees import matched, tree_map
from graphc.ops.record.value import functions as f

BUCKET = 1 << 20  # bytes of gradients that are sent together, at least


class Synchronous:
    """Devices that train one set of parameters in step, each with its part of a batch.

    loss        loss(params, batch) -> number, a mean over the rows of the batch
    params      any nesting of arrays; each device gets a copy in variables of its own
    optimizer   an optimiser of `gc.optim`
    devices     names, one for each copy
    shard       True: each device keeps only its share of what the optimiser keeps, and updates that
                share of the parameters; "parameters": of those, too, it keeps only its share
    options     of `gc.compile`

    `params` and `state` are lists, for each device what it has in variables; shares are vectors, of
    several parameters each.  A call with a batch
    is one step, and gives the loss; in a compiled function it is a part of that.
    Raises GraphError for bad arguments; when called, TypeRuleError for a bad batch, and GraphError
    for one with fewer rows than devices.
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        params: Any,
        optimizer: Optimiser,
        devices: Sequence[str],
        shard: bool | str = False,
        **options: Any,
    ) -> None:
        self.devices = team(devices, "synchronous training")
        if len({*self.devices}) < len(self.devices):
            raise GraphError("synchronous training takes devices, each of them once")
        function_of(loss, "synchronous training")
        optimiser_of(optimizer, "synchronous training")
        if type(shard) is not bool and shard != "parameters":
            raise GraphError(f'shard is True, False or "parameters", not {shard!r:.80}')
        if shard and optimizer.prepare is not None:
            raise GraphError(
                "an optimiser that looks at all gradients at once cannot be sharded",
                hint="clip in the loss, or train with shard=False",
            )
        self.slopes = value_and_grad(loss)
        self.tree = flatten(params, keep_order=True)[1]
        self.buckets = _buckets(params, optimizer, len(self.devices)) if shard else []
        self.rule = optimizer.masked([b.decays for b in self.buckets]) if shard else optimizer
        shares = [self._share(params, k) if shard else params for k in range(len(self.devices))]
        self.is_gathered = shard == "parameters"
        self.params = [tree_map(Variable, x if self.is_gathered else params) for x in shares]
        self.state = [tree_map(Variable, optimizer.init(share)) for share in shares]
        self.compiled = compile(self.step, devices=self.devices, **options)

    def __call__(self, batch: Any) -> Any:
        """One step with a batch, any nesting of arrays with equal first axes; the loss."""
        return self.compiled(batch)

    def values(self) -> Any:
        """The parameters as arrays."""
        if not self.is_gathered:
            return _values(self.params[0])
        parts = zip(*(_values(shares) for shares in self.params), strict=True)
        return self._tree_of([np.concatenate(part) for part in parts])

    def step(self, batch: Any) -> Any:
        """What a call does, for functions that are compiled for these devices."""
        return self._stepped(self._parts(batch))

    def step_apart(self, batches: Sequence[Any]) -> Any:
        """As `step`, with a batch of each device: of a `gc.Reader` there, say. Each counts by its
        rows. Raises GraphError for another number of batches."""
        if len(batches) != len(self.devices):
            raise GraphError(
                f"{len(self.devices)} devices take as many batches, got {len(batches)}"
            )
        rows = [rows_of(*flatten(batch, keep_order=True)) for batch in batches]
        return self._stepped([(b, n / sum(rows)) for b, n in zip(batches, rows, strict=True)])

    def _stepped(self, parts: Sequence[tuple[Any, float]]) -> Any:
        given = zip(self._copies(), parts, strict=True)
        slopes = [self._slopes(k, each, *part) for k, (each, part) in enumerate(given)]
        losses, gradients = zip(*slopes, strict=True)
        if self.buckets:
            self._update_shares(gradients)
        else:
            for k, total in enumerate(all_reduce(gradients, self.devices)):
                with device(self.devices[k]):
                    params = _values(self.params[k])
                    made = self.rule.update(total, _values(self.state[k]), params)
                    tree_map(Variable.assign, (self.params[k], self.state[k]), made)
        return reduce_to(losses, self.devices)

    # -- how

    def _parts(self, batch: Any) -> list[tuple[Any, float]]:
        """The part of each device, and its share of the rows."""
        leaves, tree = flatten(batch, keep_order=True)
        rows = rows_of(leaves, tree)
        count = len(self.devices)
        if rows < count:
            raise GraphError(f"a batch of {rows} row(s) does not go round {count} devices")
        ends = [rows * k // count for k in range(count + 1)]
        return [
            (unflatten(tree, [cut_rows(leaf, a, b) for leaf in leaves]), (b - a) / rows)
            for a, b in pairwise(ends)
        ]

    def _copies(self) -> list[Any]:
        """The parameters on each device: what it has, or the shares of all."""
        held = self._each(lambda k: _values(self.params[k]))
        if not self.is_gathered:
            return held
        whole = all_gather(held, self.devices)
        return self._each(lambda k: self._tree_of(whole[k]))

    def _each(self, function: Callable[[int], Any]) -> list[Any]:
        """A value of each device, made there."""
        made = []
        for k, name in enumerate(self.devices):
            with device(name):
                made.append(function(k))
        return made

    def _tree_of(self, vectors: Sequence[Any]) -> Any:
        """The parameters in the vectors of all buckets."""
        pairs = zip(self.buckets, vectors, strict=True)
        found = dict(pair for bucket, vector in pairs for pair in bucket.cut(vector))
        return unflatten(self.tree, [found[number] for number in range(len(found))])

    def _slopes(self, k: int, params: Any, part: Any, share: float) -> tuple[Any, Any]:
        """A device's share of the loss and of the gradients."""
        with device(self.devices[k]):
            value, gradients = self.slopes(params, part)
            return f.multiply(value, share), tree_map(lambda g: f.multiply(g, share), gradients)

    def _update_shares(self, gradients: Sequence[Any]) -> None:
        flat = [self._flat(tree, k) for k, tree in enumerate(gradients)]
        made = []
        for k, total in enumerate(reduce_scatter(flat, self.devices)):
            with device(self.devices[k]):
                held = _values(self.params[k])
                share = held if self.is_gathered else self._share(held, k)
                new, state = self.rule.update(total, _values(self.state[k]), share)
                tree_map(Variable.assign, self.state[k], state)
                if self.is_gathered:
                    tree_map(Variable.assign, self.params[k], new)
                made.append(new)
        if not self.is_gathered:
            self._spread(made)

    def _spread(self, made: Sequence[Any]) -> None:
        """Have the copies of all devices hold the shares of each."""
        for k, whole in enumerate(all_gather(made, self.devices)):
            with device(self.devices[k]):
                leaves = matched(self.tree, self.params[k], "parameters")
                for bucket, vector in zip(self.buckets, whole, strict=True):
                    for number, value in bucket.cut(vector):
                        leaves[number].assign(value)

    def _flat(self, tree: Any, k: int) -> list[Any]:
        """A tree of arrays on a device as vectors, one for each bucket."""
        leaves = matched(self.tree, tree, "gradients")
        with device(self.devices[k]):
            return [bucket.joined(leaves) for bucket in self.buckets]

    def _share(self, params: Any, k: int) -> list[Any]:
        """A device's share of the parameters: a part of each bucket."""
        rows = [bucket.length // len(self.devices) for bucket in self.buckets]
        return [x[k * n : (k + 1) * n] for x, n in zip(self._flat(params, k), rows, strict=True)]


@record(frozen=True)
class Bucket:
    """Parameters of one dtype whose gradients travel together: their numbers and shapes, whether
    weights decay, and how long they are as a vector that divides by the devices."""

    numbers: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    decays: bool
    length: int

    def joined(self, leaves: Sequence[Any]) -> Any:
        """These of the leaves as one vector, with zeros behind."""
        parts = [f.reshape(leaves[k], (-1,)) for k in self.numbers]
        left = self.length - sum(map(math.prod, self.shapes))
        zeros = [f.zeros((left,), parts[0].dtype)] if left else []
        return f.concatenate([*parts, *zeros])

    def cut(self, vector: Any) -> Iterator[tuple[int, Any]]:
        """The number of each leaf and its value."""
        start = 0
        for number, shape in zip(self.numbers, self.shapes, strict=True):
            stop = start + math.prod(shape)
            yield number, f.reshape(vector[start:stop], shape)
            start = stop


def _buckets(params: Any, optimizer: Optimiser, count: int) -> list[Bucket]:
    """The last parameters first, as their gradients are: each bucket goes off when it is full."""
    leaves, tree = flatten(params, keep_order=True)
    decays = [bool(decay) for decay in optimizer.decays(tree, params)]
    made: list[Bucket] = []
    filling: dict[tuple[np.dtype[Any], bool], list[int]] = {}
    for k in reversed(range(len(leaves))):
        key = np.asarray(leaves[k]).dtype, decays[k]
        numbers = filling.setdefault(key, [])
        numbers.append(k)
        if sum(np.asarray(leaves[n]).nbytes for n in numbers) >= BUCKET:
            made.append(_bucket(filling.pop(key), leaves, key[1], count))
    return made + [_bucket(numbers, leaves, key[1], count) for key, numbers in filling.items()]


def _bucket(numbers: Sequence[int], leaves: Sequence[Any], decays: bool, count: int) -> Bucket:
    shapes = tuple(np.shape(leaves[k]) for k in numbers)
    length = sum(map(math.prod, shapes))
    return Bucket(tuple(numbers), shapes, decays, -(-length // count) * count)


def _values(tree: Any) -> Any:
    return tree_map(lambda variable: variable.value, tree)
