"""ImportedModel: a model of another library as a function of arrays, compiled for the sizes that it
is first called with; when others come, for all values of the dimensions that the file leaves open.

Where the elements of a value decide a size or a path (a shape that is an input, the number of boxes
that are left), tracing stops there: the graph up to that value is compiled and run, and tracing
goes on with what it gave.  Each answer has a compilation of its own, and so has each size then.

    call -> Compiled(query: how many boxes?) -- 3 --> Compiled(the rest, for 3)
                                             -- 5 --> Compiled(the rest, for 5)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any, Protocol

import numpy as np

from graphc.base.record import record, replace
from graphc.config import Config
from graphc.errors import FeedError, GraphError, RunError
from graphc.formats.deciding_values import Needed, Oracle, deciding
from graphc.formats.encoded_values import (
    CARRIED,
    STRINGS,
    Carried,
    Narrow,
    Text,
    UnnamedWords,
    carriers,
    text_of,
)
from graphc.formats.kinds import Kind, element_of, type_of
from graphc.formats.model_cache import ModelCache, Stamp, kept_name, told_by
from graphc.formats.outlines import ARRAY, are_arrays, frozen, leaf_count, outline_of, together
from graphc.frontend.compile.build import Built, build
from graphc.frontend.compile.memory_check import check_memory
from graphc.frontend.compile.open_sizes import (
    NEEDS_NUMBERS,
    USUAL,
    OpenBuilds,
    build_traced,
    can_be_open,
    changing_shapes,
    examples_of,
    scope_of,
)
from graphc.frontend.compile.postmortem import explained
from graphc.frontend.compile.signature import as_array
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.frontend.files.marked_sizes import SizeMarks
from graphc.frontend.trace.spec import symbols_of
from graphc.frontend.trace.trace import Parameter, identifier, trace_function
from graphc.frontend.trace.tree import unique_names
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.op import OPS
from graphc.ir.sizes import Scope
from graphc.ir.types import Type, dtype, substitute, tensor
from graphc.ops.record.value import Value, current, lift
from graphc.runtime.call.open_executable import Latest

Array = np.ndarray[Any, Any]
MOST_SEEN = 8  # calls that are compared
MOST_ANSWERS = 256  # compilations that one signature keeps, for answers of the data


@record(eq=False)
class Compiled:
    """What is compiled for a signature and the answers so far.

    built    the whole model, or a query: the value that tracing cannot go on without
    outline  how the results are put together (None for a query)
    """

    built: Built
    outline: Any = None
    answers: OrderedDict[tuple[Any, ...], Compiled] = field(default_factory=OrderedDict)

    @property
    def plain(self) -> bool:
        """Whether its results are arrays, one each."""
        return are_arrays(self.outline)


class _Sizes:
    """Calls that differ in sizes alone: the first shapes, and what serves further ones."""

    def __init__(self, seen: Sequence[Type]) -> None:
        self.seen = [seen]
        self.open: OpenBuilds[Any] = OpenBuilds()


class Imported(Protocol):
    """What an importer makes of a file: a function that can be traced for any sizes.

    title  what messages call it, kinds says what its inputs are, node_count counts its operators
    """

    @property
    def title(self) -> str: ...

    @property
    def kinds(self) -> Mapping[str, Kind]: ...

    @property
    def result_names(self) -> tuple[str, ...]: ...

    @property
    def node_count(self) -> int: ...

    def results(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Its results on feeds, in the trace that is active. Raises GraphError, and Needed."""


class ImportedModel(LoadedGraph):
    """A model of another library; see the head of this file.

    params        names of its inputs, declared the types of those that the file gives one
    result_names  names of its results
    words         strings that it knows, by the inputs that take strings
    """

    def __init__(
        self, source: Imported, config: Config | None = None, words: Iterable[str] = ()
    ) -> None:
        import graphc.ops  # noqa: F401  (fills the op table)

        self.source = source
        self.kinds = source.kinds
        types = {name: type_of(name, kind) for name, kind in self.kinds.items()}
        self._takes_none = any(kind.form == "optional" for kind in self.kinds.values())
        self._takes_strings = any(kind.element in STRINGS for kind in self.kinds.values())
        self._words = (*sorted(words), None) if self._takes_strings else ()
        self._compilations: dict[tuple[Any, ...], Compiled] = {}
        self._sized: Latest[tuple[Any, ...], Compiled] = Latest()  # sizes of open compilations
        self._sizes: dict[tuple[Any, ...], _Sizes] = {}
        self.cache: ModelCache | None = None  # where what is compiled is kept for other processes
        self.beside: Mapping[str, Stamp] = {}  # the files beside its own that it was read from
        # For arrays alone, which go in as they are.
        self._ready: dict[tuple[Any, ...], Compiled] = {}
        self._traced: dict[tuple[tuple[str, int], ...], Graph] = {}
        self._outlines: dict[tuple[tuple[str, int], ...], list[Any]] = {}
        self._open_graph: Graph | None = None  # the one with the symbols of the file
        self._adopt(
            identifier(source.title),
            tuple(self.kinds),
            {name: kind for name, kind in types.items() if kind is not None},
            unique_names(source.result_names),
            config or Config.create(),
        )
        self.plain = len(self.declared) == len(self.params)

    @property
    def graph(self) -> Graph:  # type: ignore[override]
        """The traced graph, with the symbols of the file; marks say what follows from these.

        Raises GraphError where an operator needs their values: see `bound`.
        """
        if not self._symbolic:
            return self.bound({})
        if self._open_graph is None:
            self._open_graph = self._symbolic_graph()
        return self._open_graph

    @property
    def words(self) -> dict[str, Array]:
        """Strings that the file names, for each input of strings."""
        known = np.array([w for w in self._words if w is not None] or ["a", "b"], object)
        return {name: known for name, kind in self.kinds.items() if kind.element in STRINGS}

    @property
    def node_count(self) -> int:
        return self.source.node_count

    def variable_values(self) -> dict[tuple[str, str], Array]:
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, replace(self.config, dump=None, sample=None))

    def __call__(self, *args: Any, **feeds: Any) -> Any:
        """Results in a dict under the file's names; sequences are lists."""
        values = self.arrange(args, feeds)
        if current() is not None or any(isinstance(v, Value) for v in values):
            return dict(zip(self.result_names, self._inside(values)))
        return dict(zip(self.result_names, self.run(values)))

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run on one value per parameter; one per result."""
        key = tuple([(v.dtype, v.shape) if type(v) is np.ndarray else None for v in values])
        ready = self._ready.get(key)
        while ready is not None and ready.outline is None:
            ready = ready.answers.get(told_by(*self._execute(ready, values)))
        if ready is not None:
            made = self._execute(ready, values)
            return made if ready.plain else together(ready.outline, made)
        first, compiled, arrays = self._prepared(values)
        own = all(a is v for a, v in zip(arrays, values)) and len(arrays) == len(values)
        if own and not self._takes_strings:
            self._ready[key] = first
        return together(compiled.outline, self._execute(compiled, arrays))

    def runner(self, values: Sequence[Array]) -> Callable[[Sequence[Array]], list[Array]] | None:
        """What `run` does for arrays of these types and shapes, once it has run on them, without
        looking for it; None where their elements decide that."""
        ready = self._ready.get(tuple([(v.dtype, v.shape) for v in values]))
        if ready is None or ready.outline is None or not ready.plain:
            return None
        return partial(self._execute, ready)

    def _prepared(self, values: Sequence[Any]) -> tuple[Compiled, Compiled, list[Array]]:
        """What runs these feeds first, what runs them for its answers, and the arrays it takes.

        Strings go in as places among those that the file names, so that one compilation serves all;
        where that is not enough to know about them, as places among their own.
        """
        while True:
            leaves = [self._leaf(name, value) for name, value in zip(self.params, values)]
            try:
                return self._looked_up(leaves)
            except UnnamedWords:
                self._words = ()

    def _leaf(self, name: str, value: Any) -> Any:
        """A feed as an array, a list of arrays, or None."""
        kind = self.kinds[name]
        if kind.form == "sequence" or (kind.form == "optional" and isinstance(value, list)):
            if not isinstance(value, list | tuple):
                raise FeedError(f"{name} is a sequence: feed a list of arrays")
            return [as_array(item) for item in value]
        if value is None and kind.form == "optional":
            return None
        if kind.form == "optional":
            return as_array(value)
        if kind.element in STRINGS:
            text = text_of(value, self._words)
            return Text(
                self._checked(name, self._type_for(name, text.value), text.value), text.words
            )
        if kind.element in CARRIED:
            return Narrow(as_array(np.asarray(value).astype(CARRIED[kind.element])), kind.element)
        return self._checked(name, self._type_for(name, value), value)

    def _type_for(self, name: str, value: Any) -> Type:
        """The declared type of a tensor; one without a rank has that of what is fed."""
        return self.declared.get(name) or tensor(element_of(self.kinds[name]), np.shape(value))

    def prepared(self, args: tuple[Any, ...], feeds: dict[str, Any]) -> tuple[Built, list[Array]]:
        """The compilation for a call, and the arrays that its executable takes."""
        values = self.arrange(args, feeds)
        _, compiled, arrays = self._prepared(values)
        self._require_arrays(compiled.outline)
        return compiled.built, arrays

    # -------------------------------------------------------------------------------- compiling

    def _looked_up(self, values: Sequence[Any]) -> tuple[Compiled, Compiled, list[Array]]:
        """What runs these values, compiled as far as it is not yet: first and last."""
        if self.plain:
            self.bind([v.value.shape if isinstance(v, Carried) else v.shape for v in values])
        arrays: list[Array] = []
        outline = [outline_of(v, arrays) for v in values]
        key = (frozen(outline), *((a.dtype.str, a.shape) for a in arrays))
        with self._lock:
            first = self._compilations.get(key) or self._sized.get(key)
            if first is None:
                first = self._serve(outline, arrays)
                for gone in self._sized.add(key, first, first.built.image) if first else ():
                    self._ready = {k: kept for k, kept in self._ready.items() if kept is not gone}
            if first is None:
                first = self._compilations[key] = self._compile(outline, arrays, [])
            return first, self._answered(first, outline, arrays), arrays

    def _answered(self, compiled: Compiled, outline: list[Any], arrays: list[Array]) -> Compiled:
        """What runs these arrays after all queries, each of which is run."""
        answers: list[Array] = []
        while compiled.outline is None:
            (answer,) = self._execute(compiled, arrays)
            answers.append(answer)
            found = compiled.answers.get(told_by(answer))
            if found is None:
                found = compiled.answers[told_by(answer)] = self._compile(outline, arrays, answers)
                while len(compiled.answers) > MOST_ANSWERS:
                    compiled.answers.popitem(last=False)
            compiled = found
        return compiled

    def _keep(
        self,
        compiled: Compiled,
        outline: list[Any],
        arrays: Sequence[Array],
        answers: Sequence[Array],
    ) -> None:
        """Keep a program of arrays for other processes."""
        query = compiled.outline is None
        if self.cache is not None and are_arrays(outline) and (query or compiled.plain):
            self.cache.keep(kept_name(arrays, answers, query), compiled.built.image)

    def _serve(self, outline: list[Any], arrays: Sequence[Array]) -> Compiled | None:
        """What runs these arrays, of a compilation for many sizes: there is one from the second
        size on, where what decides sizes is known without a run."""
        if not self._may_open():
            return None
        kinds = [tensor(dtype(a.dtype), a.shape) for a in arrays]
        key = (frozen(outline), *((k.dtype, k.rank) for k in kinds))
        sizes = self._sizes.get(key)
        if sizes is None:
            self._sizes[key] = _Sizes(kinds)
            return None
        shapes = [a.shape for a in arrays]
        found = sizes.open.serving(shapes)
        if found is None and sizes.open.may_grow:
            sizes.seen = [*sizes.seen, kinds][-MOST_SEEN:]
            names = self._leaf_names(outline)
            opened = self.types if self.plain else changing_shapes(names, sizes.seen)
            given = examples_of(opened, shapes)

            def make(scope: Scope) -> tuple[Built, Any]:
                built, results = self._build_open(names, opened, outline, scope)
                if self.cache is not None and built.is_open and are_arrays([*outline, *results]):
                    self.cache.keep_open(built.image)
                return built, results

            found = sizes.open.extended(given, shapes, make) if given else None
        return Compiled(*found) if found is not None else None

    def _execute(self, compiled: Compiled, arrays: Sequence[Array]) -> list[Array]:
        executable = compiled.built.executable
        try:
            made = executable(*arrays)
        except RunError as error:
            raise self._explained(error, arrays) from error.__cause__
        return [made] if len(executable.results) == 1 else list(made)

    def _explained(self, error: Any, arrays: Sequence[Any]) -> BaseException:
        with suppress(GraphError):  # values decide sizes: there is no one graph to look at
            return explained(error, self.bound(self.bind([a.shape for a in arrays])), arrays)
        return error  # type: ignore[no-any-return]

    def _compile(
        self, outline: list[Any], arrays: Sequence[Array], answers: list[Array]
    ) -> Compiled:
        names = self._leaf_names(outline)
        kinds = [tensor(dtype(a.dtype), a.shape) for a in arrays]
        try:
            graph, shape = self._trace(names, kinds, outline, answers)
            compiled = Compiled(self._compiled(graph), shape)
        except _Query as query:
            compiled = Compiled(self._compiled(query.graph))
        self._keep(compiled, outline, arrays, answers)
        return compiled

    def _is_for_all(self) -> bool:
        """It is traced anew for sizes that are given: some are imported only then."""
        return False

    def _may_open(self) -> bool:
        return can_be_open(self.config)

    def _opened(self, scope: Scope) -> tuple[Built, Any]:
        outline = [self._form(kind) for kind in self.kinds.values()]
        try:
            built, results = self._build_open(self.params, self.types, outline, scope)
        except UnnamedWords:
            raise GraphError("strings that only a run can tell decide results") from None
        self._require_arrays(results)
        return built, results

    def _build_open(
        self, names: Sequence[str], kinds: Sequence[Type], outline: list[Any], scope: Scope
    ) -> tuple[Built, Any]:
        """A compilation that leaves sizes open, and how its results are put together."""
        graph, results = self._traced_open(names, kinds, outline, scope)
        return build_traced(graph, scope, self.config), results

    def _traced_open(
        self, names: Sequence[str], kinds: Sequence[Type], outline: list[Any], scope: Scope
    ) -> tuple[Graph, Any]:
        """The graph with these symbols open, and how its results are put together."""
        open_kinds = [substitute(kind, scope.symbols) for kind in kinds]
        try:
            return self._trace(names, open_kinds, outline, [])  # type: ignore[arg-type]
        except _Query:
            raise GraphError("the elements of a value decide sizes") from None

    def _symbolic_graph(self) -> Graph:
        self._require_plain()
        outline = [self._form(kind) for kind in self.kinds.values()]
        if any(form != ARRAY for form in outline):
            self._require_bound()
        try:
            graph, results = self._trace(self.params, self.types, outline, [])
        except (*NEEDS_NUMBERS, _Query):
            graph, results = self._marked_graph(outline)
        self._require_arrays(results)
        return graph

    def _marked_graph(self, outline: list[Any]) -> tuple[Graph, Any]:
        """The graph of a model that makes other sizes than polynomials of those of the file."""
        scope = scope_of(dict.fromkeys(sorted(symbols_of(self.types)), USUAL), for_any=True)
        try:
            graph, results = self._traced_open(self.params, self.types, outline, scope)
            return SizeMarks(scope, graph.next_id).marked(graph), results  # type: ignore[return-value]
        except (*NEEDS_NUMBERS, UnnamedWords) as error:
            self._open.closed = str(error).splitlines()[0]
            self._require_bound()

    def _compiled(self, graph: Graph) -> Built:
        check_memory(graph)
        return build(graph, self.config)

    def _form(self, kind: Kind) -> Any:
        """How a tensor of such a kind goes in."""
        if kind.element in STRINGS:
            return "text", self._words
        return ("narrow", kind.element) if kind.element in CARRIED else ARRAY

    def _leaf_names(self, outline: list[Any]) -> list[str]:
        names = []
        for name, form in zip(self.params, outline):
            if isinstance(form, list):
                names += [f"{name}_{k}" for k in range(len(form))]
            elif form is not None:
                names.append(name)
        return names

    def _trace(
        self, names: Sequence[str], kinds: Sequence[Type], outline: Any, answers: Sequence[Array]
    ) -> tuple[Graph, Any]:
        """The graph for such parameters, and how its results are put together.

        Raises _Query for what tracing cannot go on without.
        """
        parameters = [Parameter(name, kind) for name, kind in zip(names, kinds)]
        shapes: list[Any] = []
        params: tuple[Node, ...] = ()

        def call(tracers: list[Any]) -> Any:
            nonlocal params
            params = tuple(t.node for t in tracers)
            oracle = Oracle(current(), answers)
            feeds = dict(zip(self.params, together(outline, list(tracers))))
            with deciding(oracle.decide):
                results = self.source.results(feeds)
            for text in carriers(results):
                if isinstance(text, Text):
                    text.spelled()
            made: list[Any] = []
            shapes.extend(outline_of(value, made) for value in results)
            return {str(k): value for k, value in enumerate(made)}

        try:
            traced = trace_function(self.name, parameters, call).graph
        except Needed as needed:
            raise _Query(_query(self.name, params, needed.value)) from None
        titles = [
            f"{name}_{k}" if isinstance(form, list) else name
            for name, form in zip(self.result_names, shapes)
            for k in range(leaf_count(form))
        ]
        return traced.replace(result_names=unique_names(titles)), shapes

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        self._require_plain()
        return super().bind(shapes)

    def bound(self, binding: dict[str, int]) -> Graph:
        """The graph with its symbols replaced: `model.bound({"N": 4})`."""
        self._require_plain()
        if symbols_of(self.types) - binding.keys():
            self._require_bound()
        key = tuple(sorted(binding.items()))
        if key not in self._traced:
            kinds = [substitute(kind, binding) for kind in self.types]
            outline = [self._form(kind) for kind in self.kinds.values()]
            try:
                graph, results = self._trace(self.params, kinds, outline, [])  # type: ignore[arg-type]
            except UnnamedWords:
                raise GraphError(
                    f"{self.name}: strings that only a run can tell decide results",
                    hint="call it from Python: gc.load(...) compiles for what it is given",
                ) from None
            except _Query as query:
                raise GraphError(
                    f"{self.name}: the elements of a value decide sizes, a run alone can tell",
                    details=query.graph.results[0].describe(),
                    hint="call it from Python: gc.load(...) compiles for what it is given",
                ) from None
            self._traced[key] = graph
            self._outlines[key] = results
        return self._traced[key]

    def build(self, *shapes: tuple[int, ...]) -> Built:
        """The compilation for parameters of these shapes; without them, for all values of the
        symbolic dimensions.  Raises GraphError where that needs numbers."""
        self._require_no_texts()
        self._require_plain()
        if self._symbolic and not shapes:
            return self._for_all()
        binding = self.bind(shapes) if self._symbolic else {}
        key = tuple(sorted(binding.items()))
        with self._lock:
            if key not in self._built:
                graph = self.bound(binding)
                self._require_arrays(self._outlines[key])
                self._built[key] = self._compiled(graph)
            return self._built[key]

    def build_exactly(self, *shapes: tuple[int, ...]) -> Built:
        self._require_writable(shapes)
        return super().build_exactly(*shapes)

    def planned(self, *shapes: tuple[int, ...]) -> Graph | Program:
        self._require_writable(shapes)
        return super().planned(*shapes)

    def _require_writable(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Raise GraphError for a model that no compiled file can hold: these take arrays alone."""
        self._require_plain()
        if self._symbolic and not shapes:
            self._require_bound()
        binding = self.bind(shapes) if self._symbolic else {}
        self.bound(binding)
        self._require_no_texts()
        self._require_arrays(self._outlines[tuple(sorted(binding.items()))])

    def _require_plain(self) -> None:
        """Raise GraphError where inputs have no type but what a call says."""
        for name, kind in self.kinds.items():
            if name not in self.declared:
                what = "no declared rank" if kind.form == "tensor" else f"the form {kind.form}"
                raise GraphError(
                    f"{self.name}: the input {name!r} has {what}: only calls say its type",
                    hint="call it from Python: gc.load(...)(...)",
                )

    def _require_no_texts(self) -> None:
        texts = [name for name, kind in self.kinds.items() if kind.element in STRINGS]
        if texts:
            raise GraphError(
                f"{self.name}: the input {texts[0]!r} takes strings, compiled files take arrays",
                hint="call it from Python: gc.load(...)(...)",
            )

    def _require_arrays(self, outline: list[Any]) -> None:
        """Raise GraphError for results that compiled files and the command line cannot give."""
        for name, form in zip(self.result_names, outline):
            if isinstance(form, tuple) and form[0] in ("text", "maps"):
                what = "strings" if form[0] == "text" else "dictionaries"
                raise GraphError(
                    f"{self.name}: the result {name!r} holds {what}",
                    hint="call it from Python: gc.load(...)(...)",
                )

    def _inside(self, values: Sequence[Any]) -> list[Any]:
        """The model as part of what is traced."""
        trace = current()
        if trace is None:
            trace = next(v.owner for v in values if isinstance(v, Value))
        operands = [lift(v, trace) for v in values]
        kinds = [operand.type for operand in operands]
        try:
            graph, shape = self._trace(self.params, kinds, [ARRAY] * len(kinds), [])
        except _Query as query:
            raise GraphError(
                f"{self.name}: the elements of a value decide sizes",
                details=query.graph.results[0].describe(),
            ) from None
        nodes = tuple(operand.node for operand in operands)
        made = trace.emit(OPS["call"], nodes, {"name": graph.name}, regions=(graph,))
        return together(shape, list(made) if isinstance(made, tuple) else [made])


# ------------------------------------------------------------------------------------ queries


class _Query(Exception):
    """A graph that must be run before tracing can go on."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.name)
        self.graph = graph


def _query(name: str, params: tuple[Node, ...], value: Value) -> Graph:
    """The graph up to a value."""
    builder = value.owner.builder
    return Graph(
        name,
        params,
        list(builder.nodes),
        (value.node,),
        result_names=("0",),
        next_id=builder.next_id,
    )
