"""Tracing: run a Python function once on tracers and keep the graph of what it did."""

from __future__ import annotations

import itertools
import re
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from graphc.base.garbage_collection import collector_paused
from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import GraphError, GraphHint, TraceError
from graphc.frontend.trace.tracer import Tracer, of_key
from graphc.frontend.trace.tree import TreeDef, flatten, leaf_names, unique_names
from graphc.ir.graph import Builder, Graph, Location, Node, is_same
from graphc.ir.op import OPS, Op
from graphc.ir.sizes import USUAL_COUNT, Scope, Size
from graphc.ir.types import Dim, DType, Type
from graphc.ir.user_lines import locate, locate_instruction, location_of, of_python, user_file
from graphc.ops.record.value import Stateful, Trace, Value, current, is_python_number, lift, tracing
from graphc.seams.numpy import hidden_by

MOST_COPIES = 1000  # of one line, before a hint says that there are loops


Failure = TypeVar("Failure", bound=BaseException)


def without_internal_frames(error: Failure) -> Failure:
    """The error, whose traceback has the user's frames only from here on."""
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        if user_file(traceback.tb_frame.f_code) is not None:
            frames.append(traceback)
        traceback = traceback.tb_next
    kept: types.TracebackType | None = None
    for entry in reversed(frames):
        kept = types.TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return error.with_traceback(kept)


def raised_by_user(error: BaseException) -> bool:
    """Whether the user's code raised an error, itself or in a module of Python's that it called."""
    found, traceback = False, error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not of_python(code):
            found = user_file(code) is not None
        traceback = traceback.tb_next
    return found


def _escaped() -> Location | None:
    raise TraceError(
        "a traced array is used after the function that made it has returned",
        location=locate(2),
        hint="return it from the function instead of storing it elsewhere",
    )


class FunctionTrace(Trace):
    """The trace of one call of a Python function."""

    def __init__(self, scope: Scope | None = None) -> None:
        super().__init__(Builder(), Tracer)
        self.locate = self._locate
        self.place: tuple[Location | None, int] = None, 0  # the line and instruction of a node
        self.copies: Counter[tuple[Location | None, int, str]] = Counter()  # of ops, by place
        self.names: dict[str, int] = {}  # of values and parameters
        self._parameters: set[str] = set()
        self.groups = 0  # colocation groups so far
        self.ties: dict[tuple[str, str], list[str]] = {}  # those that variables are in
        self.scope = scope  # of sizes that stay open
        self.counts_sizes = scope is not None
        self.counts: dict[str, Node] = {}  # what the run counts, by the symbol that it is
        self.is_body = False  # of a loop, a branch or a slice: no count is known outside of it

    @property
    def given_names(self) -> dict[str, int]:
        """The names that `gc.name` gave."""
        return {name: id for name, id in self.names.items() if name not in self._parameters}

    def close(self) -> None:
        """From here on every operation on one of its tracers raises TraceError."""
        self.locate = _escaped
        self.closed = True

    def emit(self, op: Op, nodes: tuple[Node, ...], attrs: Mapping[str, Any], **fields: Any) -> Any:
        try:
            made = super().emit(op, nodes, attrs, **fields)
            self.copies[(*self.place, op.name)] += not op.traits.constant
            return made
        except GraphError as error:
            error.details += tuple(self._told(error.message))
            raise

    def _locate(self) -> Location | None:
        self.place = locate_instruction(2)
        return self.place[0]

    def _told(self, message: str) -> Iterator[str]:
        """What the counts are that a message speaks of."""
        for symbol, node in self.counts.items():
            if re.search(rf"\b{symbol}\b", message):
                where = f" at {node.loc[0]}:{node.loc[1]}" if node.loc else ""
                yield f"{symbol}: as many elements as the run finds{where}"

    def data_size(self, name: str, count: Value, most: Any = None) -> Any:
        inner = current()
        if inner is not self and isinstance(inner, FunctionTrace):
            return inner.data_size(name, count, most)
        if self.scope is None:
            return super().data_size(name, count, most)
        known = self.scope.symbols
        for symbol, node in self.counts.items():
            if is_same(node, count.node):
                return known[symbol] if known[symbol].hint > 1 else known[symbol].hint
        symbol = next(title for k in itertools.count() if (title := f"count{k}") not in known)
        self.counts[symbol] = count.node
        made = self.scope.symbol(symbol, USUAL_COUNT)
        self.scope.most[symbol] = most
        if self.is_body:
            self.scope.inner.add(symbol)
        return made if made.hint > 1 else int(made)  # which broadcasting must tell from any other

    def constant(self, value: Any, element: DType | None = None) -> Value:
        # An array that was written to since it became a constant is a new constant.
        known = self.constants.get(id(value)) if element is None else None
        writeable = isinstance(value, np.ndarray) and value.flags.writeable
        if known is not None and writeable and not _same(value, known[1]):
            del self.constants[id(value)]
        return super().constant(value, element)

    def parameter(self, name: str, kind: Type, weak: bool = False) -> tuple[Node, Tracer]:
        """A new parameter of the graph and the tracer that stands for it."""
        op = OPS["param"]
        node = Node(self.builder.next_id, op, (), op.coerce({"name": name}), kind)
        self.builder.next_id += 1
        self.names[name] = node.id
        self._parameters.add(name)
        return node, Tracer(node, self, weak)


@refusing
def name(x: Any, name: str) -> Any:
    """Call a traced value by a name, by which a session feeds and fetches it; returns the value.

    A name that is taken in this function gets a number ("h", "h_1", ...), as in a loop over layers.
    Outside of a trace nothing happens.  Raises TraceError for what is no name or no array.
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise TraceError(f"a value is named by a str, got {name!r}", location=locate(2))
    trace = current()
    if not isinstance(trace, FunctionTrace):
        return x
    if not isinstance(x, Value | Stateful | np.ndarray | np.generic) and not is_python_number(x):
        raise TraceError(
            f"a name is given to one array, got {type(x).__name__}",
            location=locate(2),
            hint="name the arrays of a nesting one by one",
        )
    value = lift(x, trace)
    give_name(trace.names, name, value.node.id)
    return x if isinstance(x, Value | Stateful) else value


def give_name(names: dict[str, int], name: str, id: int) -> None:
    """Enter a name; where it is taken by another node a number is appended: h, h_1, ..."""
    title, number = name, 0
    while names.setdefault(title, id) != id:
        number += 1
        title = f"{name}_{number}"


def _same(array: np.ndarray[Any, Any], constant: Node) -> bool:
    before = constant.attrs["value"].array
    return np.array_equal(array, before) or np.array_equal(array, before, equal_nan=True)


@record(frozen=True)
class Traced:
    """What tracing found: the graph, how its results nest and how long it took."""

    graph: Graph
    tree: TreeDef
    seconds: float
    counts: dict[str, Node] = field(default_factory=dict)  # see `FunctionTrace`
    scope: Scope | None = None


def traced_before(error: BaseException) -> Traced | None:
    """What was traced before an error, where that counts sizes: for the true ones there may be no
    error."""
    return error.__dict__.get("traced_before")


def _noted(error: Failure, so_far: Callable[[], Traced | None]) -> Failure:
    error.__dict__["traced_before"] = so_far()
    return error


@record(frozen=True)
class Parameter:
    """One array argument of a traced function; `weak` when it came from a Python number."""

    name: str
    type: Type
    weak: bool = False


def trace_function(
    name: str,
    parameters: Sequence[Parameter],
    call: Callable[[list[Tracer]], Any],
    location: Location | None = None,
    scope: Scope | None = None,
) -> Traced:
    """The graph of `call`, which gets one tracer per parameter and returns any nesting of arrays.

    Raises TraceError, with the user's file and line, for what has no meaning in a graph;
    `location` is where the function is defined, for what no line of it is to blame for.  Sizes that
    only a run can tell are new symbols of `scope`; without it they are refused.
    """
    started = perf_counter()
    trace = FunctionTrace(scope)
    made = [trace.parameter(p.name, p.type, p.weak) for p in parameters]

    def traced(results: tuple[Node, ...], tree: TreeDef) -> Traced:
        graph = Graph(
            identifier(name),
            tuple(node for node, _ in made),
            trace.builder.nodes,
            results,
            result_names=unique_names([n or "0" for n in leaf_names(tree)]),
            names=trace.given_names,
            next_id=trace.builder.next_id,
        )
        return Traced(graph, tree, perf_counter() - started, trace.counts, scope)

    def so_far() -> Traced | None:
        return traced((), flatten(())[1]) if trace.counts else None

    try:
        with collector_paused(), tracing(trace):
            leaves, tree = flatten(call([tracer for _, tracer in made]), keep_order=True)
            results = tuple(_result(trace, leaf, k) for k, leaf in enumerate(leaves))
    except GraphError as error:
        found = _of_other_library(error) or error
        raise _noted(found.at(location_of(error) or location), so_far) from None
    except Exception as error:
        told = hidden_by(error) or of_key(error) or _of_other_library(error)
        if isinstance(told, GraphError):
            raise _noted(told, so_far) from None
        _noted(error, so_far)
        raise
    finally:
        trace.close()
    hint_unrolled(trace.copies)
    return traced(results, tree)


def _of_other_library(error: Exception) -> GraphError | None:
    from graphc.frontend.trace.other_libraries import of_other_library  # which errors alone need

    return of_other_library(error)


def _result(trace: Trace, leaf: Any, number: int) -> Node:
    if isinstance(leaf, Value | Stateful | Dim | Size):
        return lift(leaf, trace).node
    if isinstance(leaf, np.ndarray | np.generic) or is_python_number(leaf):
        return lift(leaf, trace).node
    if hasattr(leaf, "__array__"):
        return lift(np.asarray(leaf), trace).node
    raise TraceError(
        f"result {number} is {type(leaf).__name__}, not an array or a number",
        hint="return arrays in any nesting of dict, list, tuple or dataclass",
    )


def hint_unrolled(copies: Mapping[tuple[Location | None, int, str], int]) -> None:
    """Warn where one line of a Python loop was visited more than `MOST_COPIES` times.

    A visit runs an instruction once, and that may emit an op several times: the op that it emits
    least often counts the visits; those far below it belong to few of them.
    """
    if not copies or max(copies.values()) <= MOST_COPIES:
        return
    places: dict[tuple[Location, int], list[int]] = {}
    for (location, instruction, _), count in copies.items():
        if location is not None:
            places.setdefault((location, instruction), []).append(count)
    visits = {
        place: min(count for count in counts if 4 * count >= max(counts))
        for place, counts in places.items()
    }
    (location, _), most = max(visits.items(), key=lambda item: item[1], default=((None, 0), 0))
    if most > MOST_COPIES and location is not None:
        warnings.warn_explicit(
            f"this line was traced {most} times: a Python loop is copied out; gc.scan or gc.fori "
            "would compile its body once",
            GraphHint,
            *location,
        )


def identifier(name: str) -> str:
    """A name that needs no quotes in graph text."""
    made = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return f"_{made}" if not made or made[0].isdigit() else made
