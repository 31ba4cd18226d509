"""Variant: a compiled function for one signature of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.engine import Built, build
from graphc.frontend.signature import Identity, Signature, Static, feed, parameter_type
from graphc.frontend.trace import Traced
from graphc.frontend.tree import LEAF, unflatten
from graphc.ir.graph import Graph
from graphc.ir.types import Type


@dataclass(frozen=True)
class Compile:
    """One line of the ledger `fn.compiles`.

    `reason` says which argument changed and how; `compiled` counts the kernels that were built and
    `cached` those that the object-code cache already held.
    """

    signature: Signature
    reason: str
    seconds: float
    compiled: int
    cached: int

    def __str__(self) -> str:
        kernels = f"{self.compiled} kernels compiled, {self.cached} from the cache"
        return f"{self.reason} ({self.seconds:.3f} s, {kernels})"


class Variant:
    """The graph of one signature and, once it has been called, its executable."""

    def __init__(self, signature: Signature, traced: Traced) -> None:
        self.signature = signature
        self.graph: Graph = traced.graph
        self.tree = traced.tree
        self.trace_seconds = traced.seconds
        self.built: Built | None = None
        self._feeds: list[tuple[int, Type]] = []
        for position, key in enumerate(signature.keys):
            kind = parameter_type(key)
            if kind is not None:
                self._feeds.append((position, kind))

    def build(self, config: Config) -> Built:
        """Compile if that has not happened yet."""
        if self.built is None:
            if not all(p.type.is_static for p in self.graph.params if isinstance(p.type, Type)):
                raise GraphError(
                    f"{self.graph.name} has symbolic dimensions and cannot run yet",
                    hint="call it with arrays; a saved and loaded graph binds its symbols itself",
                )
            self.built = build(self.graph, config, self.trace_seconds)
        return self.built

    def run(self, leaves: Sequence[Any]) -> Any:
        """Feed the array leaves, run, and nest the results."""
        assert self.built is not None
        arrays = [feed(leaves[position], kind) for position, kind in self._feeds]
        results = self.built.executable.run(arrays, checked=True)
        return results[0] if self.tree is LEAF else unflatten(self.tree, results)

    def run_plain(self, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
        """`run` for a call whose arguments are exactly the parameters, all of them arrays."""
        assert self.built is not None
        for array in arrays:
            if array.flags.num & _READY != _READY:
                return self.run(arrays)
        results = self.built.executable.run(arrays, checked=True)
        return results[0] if self.tree is LEAF else unflatten(self.tree, results)

    def operands(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves that become operands of a `call` node."""
        return [leaves[position] for position, _ in self._feeds]


_READY = 0x1 | 0x100  # NumPy's flag bits C_CONTIGUOUS and ALIGNED


def static_leaf(key: Any) -> Any:
    """What a static leaf was, for the traced call."""
    assert isinstance(key, Static | Identity)
    return key.value
