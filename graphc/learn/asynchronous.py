"""Asynchronous data parallelism: a client thread per replica, parameters in shared variables.

Downpour SGD (Dean et al., 2012): each client reads the parameters, computes gradients of its next
batch while others go on, and lets the optimiser update the parameters as they are by then.  Reads
and updates come one at a time; their order alone decides the result, so it is recorded, and a run
that is given the order of another has its bits.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.frontend.compile.decorator import compile
from graphc.frontend.session.variable import Variable
from graphc.frontend.transforms.grad import value_and_grad
from graphc.learn.arguments import function_of, optimiser_of, team
from graphc.learn.inflight import together
from graphc.learn.optim import Optimiser
from graphc.learn.trees import tree_map


@record(frozen=True)
class AsynchronousRun:
    """What happened: `interleaving` names a replica at each of its reads and updates, which take
    turns; `losses` are (replica, loss) in the order of the updates.
    """

    interleaving: tuple[int, ...]
    losses: tuple[tuple[int, float], ...]

    @property
    def staleness(self) -> tuple[int, ...]:
        """For each update, how many others came after the read that it is based on."""
        read_at: dict[int, int] = {}
        found: list[int] = []
        for replica in self.interleaving:
            if replica in read_at:
                found.append(len(found) - read_at.pop(replica))
            else:
                read_at[replica] = len(found)
        return tuple(found)


class Asynchronous:
    """Clients that train one set of parameters.

    loss        loss(params, batch) -> number
    params      any nesting of arrays, which become variables, or of variables
    optimizer   an optimiser of `gc.optim`; its state is kept in variables, too
    devices     replica k computes on device k of these; a name may come several times
    options     of `gc.compile` for what the clients run; threads=1 unless given

    `params` and `state` hold the variables.
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        params: Any,
        optimizer: Optimiser,
        devices: Sequence[str] = ("cpu:0", "cpu:0"),
        **options: Any,
    ) -> None:
        self.devices = team(devices, "asynchronous training")
        function_of(loss, "asynchronous training")
        optimiser_of(optimizer, "asynchronous training")
        self.params = tree_map(_variable, params)
        self.state = tree_map(_variable, optimizer.init(_values(self.params)))
        options = {"threads": 1, **options}
        slopes = value_and_grad(loss)
        self._slopes = {d: compile(slopes, devices=[d], **options) for d in set(self.devices)}

        def update(gradients: Any) -> None:
            made = optimizer.update(gradients, _values(self.state), _values(self.params))
            tree_map(Variable.assign, (self.params, self.state), made)

        self._update = compile(update, devices=[self.devices[0]], **options)

    def values(self) -> Any:
        """The parameters as arrays."""
        return _values(self.params)

    def run(
        self, streams: Sequence[Iterable[Any]], replay: Sequence[int] | None = None
    ) -> AsynchronousRun:
        """Train until every stream of batches, one for each replica, is empty.

        replay   an earlier run's interleaving: with the same variables and batches at the start it
                 gives the same bits
        Raises the first error of a client, which stops the others; GraphError for an interleaving
        that does not belong to these streams.
        """
        if not isinstance(streams, Sequence) or len(streams) != len(self.devices):
            raise GraphError(
                f"{len(self.devices)} replicas take a list of as many streams of batches"
            )
        order = _Order(None if replay is None else tuple(replay))
        losses: list[tuple[int, float]] = []

        def client(replica: int) -> Callable[[], None]:
            return lambda: self._client(replica, streams[replica], order, losses)

        together([client(k) for k in range(len(streams))], order.stop)
        return AsynchronousRun(tuple(order.taken), tuple(losses))

    def _client(
        self, replica: int, batches: Iterable[Any], order: _Order, losses: list[tuple[int, float]]
    ) -> None:
        slopes = self._slopes[self.devices[replica]]
        try:
            for batch in batches:
                with order.turn(replica):
                    params = self.values()
                loss, gradients = slopes(params, batch)
                with order.turn(replica):
                    self._update(gradients)
                    losses.append((replica, float(loss)))
            order.leave(replica)
        except _Stopped:
            pass


class _Stopped(Exception):
    """Another client has failed."""


class _Order:
    """Gives one client its turn after the other, as they come or as `wanted` says."""

    def __init__(self, wanted: tuple[int, ...] | None) -> None:
        self.taken: list[int] = []
        self._wanted = wanted
        self._left = Counter(wanted)
        self._stopped = False
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, replica: int) -> Iterator[None]:
        """Nobody else has a turn meanwhile. Raises _Stopped once a client has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._is_next(replica))
            if self._stopped:
                raise _Stopped
            self.taken.append(replica)
            self._left[replica] -= 1
            yield
            self._changed.notify_all()

    def _is_next(self, replica: int) -> bool:
        if self._wanted is None:
            return True
        self._check(self._left[replica] > 0, f"ends before replica {replica}")
        return self._wanted[len(self.taken)] == replica

    def leave(self, replica: int) -> None:
        """A client has no more batches."""
        with self._changed:
            self._check(self._left[replica] <= 0, f"goes on after replica {replica}")

    def _check(self, fits: bool, problem: str) -> None:
        if not fits:
            raise GraphError(
                f"the interleaving {problem} has done its batches",
                hint="replay with the streams of the run that was recorded",
            )

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def _variable(leaf: Any) -> Variable:
    return leaf if isinstance(leaf, Variable) else Variable(leaf)


def _values(tree: Any) -> Any:
    return tree_map(lambda variable: variable.value, tree)
