"""Step: one pruned graph of a session, compiled for the shapes it is fed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.base.garbage_collection import collector_paused
from graphc.base.record import record
from graphc.config import Config
from graphc.errors import FeedError, TypeRuleError
from graphc.frontend.compile.build import Built, build
from graphc.frontend.compile.memory_check import check_memory
from graphc.frontend.compile.signature import Signature, as_array, feed, is_number
from graphc.frontend.compile.variant import Compile
from graphc.frontend.trace.spec import bind, symbols_of
from graphc.frontend.trace.tree import LEAF, treedef
from graphc.ir.graph import Node
from graphc.ir.subgraph import Subgraph
from graphc.ir.types import Type, dtype, type_text

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[str, Type, tuple[int, ...]], ...]
_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


@record(frozen=True)
class Ledger:
    """How a session compiles: one at a time, each written down in `compiles`."""

    config: Config
    lock: Any
    compiles: list[Compile]


class Step:
    """A graph and its executables, one for each binding of its symbolic dimensions."""

    def __init__(self, pruned: Subgraph, title: str, ledger: Ledger) -> None:
        self.graph = pruned.graph
        self.feeds = pruned.feeds
        self.title = title
        self.names = tuple(p.attrs["name"] for p in self.graph.params)
        self.types = tuple(tensor_of(p) for p in self.graph.params)
        kinds = (node.type for node in (*self.graph.params, *self.graph.nodes))
        self.is_symbolic = bool(symbols_of(kinds))
        self._ledger = ledger
        self._built: dict[tuple[tuple[str, int], ...], Built] = {}

    def check(self, values: Sequence[Any]) -> list[Array]:
        """The values as arrays that fit the parameters, dimensions left open aside."""
        return [checked(param, value) for param, value in zip(self.graph.params, values)]

    def build(self, arrays: Sequence[Array], others: Shapes = ()) -> Built:
        """The compilation for arrays of these shapes; `others` are further tensors whose shapes fix
        symbols."""
        binding: dict[str, int] = {}
        if self.is_symbolic:
            own = tuple(zip(self.names, self.types, (a.shape for a in arrays)))
            names, kinds, shapes = zip(*own, *others) if own or others else ((), (), ())
            binding = bind(names, kinds, shapes)
        key = tuple(sorted(binding.items()))
        found = self._built.get(key)
        if found is None:
            with self._ledger.lock, collector_paused():
                found = self._built.get(key)
                if found is None:
                    found = self._built[key] = self._compile(binding, arrays)
        return found

    def _compile(self, binding: dict[str, int], arrays: Sequence[Array]) -> Built:
        check_memory(self.graph, binding)
        made = build(self.graph, self._ledger.config, sizes=binding)
        kinds = tuple(tensor_of(p) for p in made.program.params)
        signature = Signature(treedef(dict, self.names, (LEAF,) * len(kinds)), kinds)
        sizes = ", ".join(f"{name} = {value}" for name, value in sorted(binding.items()))
        reason = (
            f"first run of {self.title}" if len(self._built) == 0 else f"{self.title}: new shape"
        )
        self._ledger.compiles.append(
            Compile(
                signature,
                f"{reason}, {sizes}" if sizes else reason,
                made.seconds,
                made.compiled,
                made.cached,
            )
        )
        return made


def tensor_of(node: Node) -> Type:
    assert isinstance(node.type, Type)
    return node.type


def checked(param: Node, value: Any) -> Array:
    """A feed as a native, aligned, contiguous array of the parameter's dtype and, where its
    dimensions are numbers, shape.

    Python numbers and lists of them adapt to the dtype; arrays must have it.  Raises FeedError.
    """
    kind = tensor_of(param)
    name = param.attrs["name"]
    try:
        if is_number(value) or isinstance(value, list | tuple):
            array = _adapted(value, kind)
        else:
            array = as_array(value)
    except (TypeRuleError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise _unfit(param, f"the feed of {name} is no {kind}: {error}") from None
    except AttributeError:  # neither an array nor anything that turns into one
        given = type(value).__name__
        raise _unfit(param, f"the feed of {name} is {given}, not an array {kind}") from None
    shape_fits = array.shape == kind.shape if kind.is_static else array.ndim == kind.rank
    if array.dtype.newbyteorder("=") != kind.dtype.numpy or not shape_fits:
        raise _unfit(param, f"the feed of {name} is {type_text(array)}, the graph takes {kind}")
    made = feed(array, kind)
    assert isinstance(made, np.ndarray)
    return made


def _adapted(value: Any, kind: Type) -> Array:
    array = np.asarray(value)
    if array.size and _RANK[dtype(array.dtype).kind] > _RANK[kind.dtype.kind]:
        return array
    return np.asarray(value, kind.dtype.numpy)


def _unfit(param: Node, message: str) -> FeedError:
    error = FeedError(message)
    error.at(param.loc)
    return error
