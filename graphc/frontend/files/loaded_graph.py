"""LoadedGraph: a saved graph as a function of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from graphc.base.record import replace
from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.errors import FeedError, GraphError, RunError
from graphc.forks import fork_safe_lock
from graphc.frontend.compile.build import Built, build, stages_of
from graphc.frontend.compile.data_sizes import build_counted, numbers_of
from graphc.frontend.compile.memory_check import check_memory
from graphc.frontend.compile.open_sizes import USUAL, OpenBuilds, build_traced, can_be_open
from graphc.frontend.compile.postmortem import explained
from graphc.frontend.compile.signature import as_array, feed, is_number
from graphc.frontend.files.gir_files import graph_of_text, read_text, save
from graphc.frontend.files.marked_sizes import NO_SIZES, MarkedSizes
from graphc.frontend.trace.spec import bind, require_symbols, symbols_of
from graphc.ir.graph import Graph, Program
from graphc.ir.op import OPS
from graphc.ir.place import Device, device_of
from graphc.ir.sizes import Scope
from graphc.ir.specialise import specialise
from graphc.ir.types import Type, type_text
from graphc.ir.verify import graphs_of
from graphc.ops.record.value import Value, current, lift, trace_of
from graphc.passes.placement.allowed_devices import inner_nodes
from graphc.runtime.call.open_executable import Latest
from graphc.runtime.files.gcx_function import Loaded, nest


class LoadedGraph(Loaded):
    """A graph that is called with arrays: in order of its parameters, or by name.

    It compiles when first called; symbolic dimensions take their values from the arrays, and one
    compilation serves all values for which its decisions hold.  Where a number is needed, every
    binding compiles once.  Inside a traced function the call becomes one `call` node.
    """

    @refusing
    def __init__(
        self, graph: Graph | Program, config: Config | None = None, stage: str | None = None
    ) -> None:
        self.graph: Graph | Program = graph
        config = config or Config.create()
        if stage == "place" and isinstance(graph, Graph) and config.devices == Config().devices:
            config = replace(config, devices=_devices_of(graph))
        first = graph.graphs[0] if isinstance(graph, Program) else graph
        for node in (*graph.params, *first.results):
            if not isinstance(node.type, Type):
                raise GraphError(f"{graph.name} takes or returns a {node.type}, which is no tensor")
        params = tuple(p.attrs["name"] for p in graph.params)
        kinds = (p.type for p in graph.params if isinstance(p.type, Type))
        self._adopt(graph.name, params, dict(zip(params, kinds)), first.result_names, config, stage)
        if first.marks:
            self._marked = MarkedSizes(graph)
            self._symbolic |= bool(self._marked)

    def _adopt(
        self,
        name: str,
        params: tuple[str, ...],
        declared: Mapping[str, Type],
        result_names: tuple[str, ...],
        config: Config,
        stage: str | None = None,
    ) -> None:
        """What it is called with and returns; parameters that are not `declared` have the types
        of what a call gives them."""
        self.name = name
        self.params = params
        self.declared = declared
        self.types = tuple(declared.values())
        self.result_names = result_names
        # Whoever wrote the file: what stages ensure holds, also where our own passes are trusted.
        self.config = replace(config, verify=max(config.verify, 2))
        self.stage = stage
        self.containers = {}
        self._built: dict[tuple[tuple[str, int], ...], Built] = {}
        self._served: Latest[tuple[tuple[str, int], ...], Built] = Latest()
        self._open: OpenBuilds[Any] = OpenBuilds()
        self._lock = fork_safe_lock()
        self._symbolic = bool(symbols_of(self.types))
        self._marked = NO_SIZES

    def __reduce__(self) -> tuple[Any, ...]:
        """With the values of its variables, which the copy keeps in containers of its own."""
        names = {here: name for name, here in self.containers.items()}
        values = self.variable_values()
        config = replace(self.config, dump=None, sample=None)
        return _again, (self.graph, config, self.stage, names, values)

    def __repr__(self) -> str:
        known = self.declared
        pairs = (f"{name}: {known[name]}" if name in known else name for name in self.params)
        return f"<graphc loaded graph {self.name}({', '.join(pairs)})>"

    @property
    def has_marks(self) -> bool:
        """Whether its text says what sizes are that no argument says."""
        return bool(self._marked)

    @property
    def node_count(self) -> int:
        return len(self.graph)

    def variable_values(self) -> dict[tuple[str, str], np.ndarray[Any, Any]]:
        """The present values of its variables, by container and name."""
        from graphc.frontend.files.saved_variables import arrays_of

        return arrays_of(self.graph)

    def __call__(self, *args: Any, **feeds: Any) -> Any:
        """Results as saved: one array, a tuple, or a dict when the results have names."""
        if current() is None and not feeds and (made := self._again(args)) is not None:
            return made
        values = self.arrange(args, feeds)
        if current() is not None or any(isinstance(v, Value) for v in values):
            return self._inline(values)
        return nest(self.result_names, self.run(values))

    def prepared(
        self, args: tuple[Any, ...], feeds: dict[str, Any]
    ) -> tuple[Built, list[np.ndarray[Any, Any]]]:
        """The compilation for a call, and the arrays that its executable takes."""
        arrays = self.check(self.arrange(args, feeds))
        return self.build(*(a.shape for a in arrays)), arrays

    def run(self, values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Run on one array per parameter; one array per result. Raises FeedError for a bad one."""
        arrays = self.check(values)
        self._latest = latest = self.build(*(a.shape for a in arrays)).executable.of(arrays)
        try:
            made: list[np.ndarray[Any, Any]] = latest.run(arrays)
        except RunError as error:
            raise self._explained(error, arrays) from error.__cause__
        return made

    def _explained(self, error: BaseException, arrays: Sequence[Any]) -> BaseException:
        """An error of a run says which value made it."""
        if not isinstance(error, RunError):
            return error
        state = self.variable_values if self.config.check_finite else None
        return explained(error, self.bound_to(arrays), arrays, state)

    def check(self, values: Sequence[Any]) -> list[Any]:
        """The values as arrays of the parameters' dtypes and ranks."""
        arrays = list(map(self._checked, self.params, self.types, values))
        self.bind([a.shape for a in arrays])
        return [feed(a, kind) for a, kind in zip(arrays, self.types)]

    def _checked(self, name: str, kind: Type, value: Any) -> Any:
        """A value as an array of a parameter's dtype."""
        try:
            array = feed(value, kind) if is_number(value) else as_array(value)
        except AttributeError:  # neither an array nor anything that turns into one
            given = type(value).__name__
            raise FeedError(f"{name} is {given}, the graph takes an array {kind}") from None
        if array.dtype.newbyteorder("=") != kind.dtype.numpy:
            fits = array.ndim == kind.rank
            hint = f"convert it: .astype('{kind.dtype.numpy.name}')" if fits else None
            raise FeedError(f"{name} is {type_text(array)}, the graph takes {kind}", hint=hint)
        return array

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The values of the symbolic dimensions. Raises FeedError for a shape that does not fit."""
        return bind(self.params, self.types, shapes)

    def bound(self, binding: dict[str, int]) -> Graph | Program:
        """The graph with its symbols replaced. Raises GraphError for one that has no value, and for
        a value of what is no symbol."""
        require_symbols(binding, symbols_of(self.types))
        if not self._symbolic:
            return self.graph
        if self._marked.counts:
            raise GraphError(
                f"{self.name} has sizes that its data decides, and no graph with numbers for them",
                hint="give the sizes (size=)",
            )
        return self._bound(binding)

    def bound_to(self, arrays: Sequence[Any]) -> Graph | Program:
        """The graph with the sizes of these arrays, and of what a run of them counts."""
        binding = self.bind([a.shape for a in arrays]) if self._symbolic else {}
        if not self._marked.counts:
            return self.bound(binding)
        traced = self._marked.traced(binding, Scope())
        state = self.variable_values()
        return self._bound(numbers_of(traced, self.config, arrays, binding, state))

    def _bound(self, binding: Mapping[str, Any]) -> Graph | Program:
        graph = self._marked.graph if self._marked else self.graph
        known = self._marked.known(binding) if self._marked else binding
        if isinstance(graph, Program):
            return graph.map(lambda g: specialise(g, known))
        return specialise(graph, known)

    def _is_for_all(self) -> bool:
        """Can stages look at the graph with its symbols? Type rules do not know marked ones."""
        return self._symbolic and not self._marked and self.stage is None

    def build(self, *shapes: tuple[int, ...]) -> Built:
        """The compilation for parameters of these shapes.

        Without shapes, that for all values of the symbolic dimensions.  Raises GraphError where
        that needs a number.
        """
        with self._lock:
            if self._symbolic and not shapes:
                return self._for_all()
            binding = self.bind(shapes) if self._symbolic else {}
            key = tuple(sorted(binding.items()))
            found = self._built.get(key) or self._served.get(key)
            if found is None:
                found = self._serving(dict(key), shapes)
                if found is not None:
                    self._served.add(key, found, found.image)
            if found is None:
                found = self._built[key] = self.build_exactly(*shapes)
        return found

    def build_exactly(self, *shapes: tuple[int, ...]) -> Built:
        """The compilation for parameters of these shapes alone."""
        binding = self.bind(shapes) if self._symbolic else {}
        if self._marked.counts:
            return build_counted(self._marked.traced(binding, Scope()), self.config)
        if self._is_for_all():
            check_memory(self.graph, binding)
            return build(self.graph, self.config, sizes=binding)
        graph = self.bound(binding)
        check_memory(graph)
        return build(graph, self.config, stage=self.stage)

    def planned(self, *shapes: tuple[int, ...]) -> Graph | Program:
        """The last stage for parameters of these shapes, which no code is made of.

        Raises GraphError where sizes have no value, and for those that only the data knows.
        """
        if self._marked.counts:
            nodes, ids = graphs_of(self.graph)[0].nodes, self._marked.counts.values()
            counted = next(node for node in nodes if node.id in ids)
            raise GraphError(
                f"{self.name} has sizes that only its data knows",
                details=(counted.summary(),),
                location=counted.loc,
                hint="compile to a .gcx file, which Python runs",
            )
        if self._symbolic and not shapes:
            self._require_bound()
        graph = self.bound(self.bind(shapes) if self._symbolic else {})
        check_memory(graph)
        return stages_of(graph, self.config, stage=self.stage)[-1].value

    def _for_all(self) -> Built:
        """The compilation that leaves the sizes open."""
        if not self._open and self._may_open():
            self._open.extended(
                dict.fromkeys(sorted(symbols_of(self.types)), USUAL), None, self._opened
            )
        if not self._open:
            self._require_bound()
        return self._open.made[0][0]

    def _require_bound(self) -> NoReturn:
        names = sorted(symbols_of(self.types))
        raise GraphError(
            f"{self.name} has symbolic dimensions ({', '.join(names)}), and needs their values",
            details=(self._open.closed,) if self._open.closed else (),
            hint=f"bind them: {' '.join(f'--bind {name}=32' for name in names)} on the command "
            "line, or call it with arrays",
        )

    def _serving(self, binding: dict[str, int], shapes: Sequence[tuple[int, ...]]) -> Built | None:
        """The compilation for these shapes of one that leaves sizes open, if there can be one."""
        found = self._open.serving(shapes) if self._symbolic else None
        if found is None and self._symbolic and self._may_open():
            if not self._marked.counts:
                check_memory(self.bound(binding))
            found = self._open.extended(binding, shapes, self._opened)
        return found[0] if found is not None else None

    def _may_open(self) -> bool:
        return isinstance(self.graph, Graph) and self.stage is None and can_be_open(self.config)

    def _opened(self, scope: Scope) -> tuple[Built, Any]:
        """The compilation that leaves sizes open. Raises what needs a number."""
        if self._marked.counts:
            return build_counted(self._marked.traced(dict(scope.symbols), scope), self.config), None
        if self._is_for_all():
            return build(self.graph, self.config, sizes=scope.symbols), None
        graph = self._bound(scope.symbols)
        assert isinstance(graph, Graph)
        return build_traced(graph, scope, self.config), None

    def save(self, path: str | PathLike[str]) -> None:
        """Save it again."""
        save(path, self.graph)

    def _require_like(self, name: str, given: Type, kind: Type) -> None:
        """Raise FeedError for an operand that is no array of a parameter's type.

        `bind` looks at shapes with symbols, and a trace for all sizes may become one for some.
        """
        open_sizes = self._symbolic or not given.is_static
        if given.dtype is not kind.dtype or not (open_sizes or given.shape == kind.shape):
            raise FeedError(f"{name} is {given}, the graph takes {kind}")

    def _inline(self, values: Sequence[Any]) -> Any:
        if isinstance(self.graph, Program):
            raise GraphError(
                f"{self.graph.name} is partitioned over devices and cannot be called in a trace"
            )
        if self._marked:
            raise GraphError(
                f"{self.name} has sizes that no argument says, and cannot be called in a trace",
                hint="trace the function that it was saved from",
            )
        trace = trace_of(*values)
        assert trace is not None
        operands = [
            lift(v, trace, None if isinstance(v, Value) else kind.dtype)
            for v, kind in zip(values, self.types)
        ]
        for name, operand, kind in zip(self.params, operands, self.types):
            self._require_like(name, operand.type, kind)
        shapes = [operand.type.shape for operand in operands]
        graph = self.graph
        if self._symbolic and all(operand.type.is_static for operand in operands):
            graph = specialise(graph, self.bind(shapes))  # type: ignore[arg-type]
        nodes = tuple(operand.node for operand in operands)
        made = trace.emit(OPS["call"], nodes, {"name": graph.name}, regions=(graph,))
        return nest(self.result_names, made if isinstance(made, tuple) else (made,))


def _again(
    graph: Graph | Program,
    config: Config,
    stage: str | None,
    names: Mapping[str, str],
    values: Mapping[tuple[str, str], np.ndarray[Any, Any]],
) -> LoadedGraph:
    """A loaded graph that was copied or pickled; `names` are what the file calls its containers."""
    from graphc.frontend.files.saved_variables import declare, with_containers
    from graphc.runtime.call.variable import container, own_container

    own = {here: own_container(name) for here, name in names.items() if here != name}
    graph = with_containers(graph, {**{here: here for here in names}, **own})
    declare(graph, own.values())
    for (here, name), value in values.items():
        if here in own:
            container(own[here]).cells[name].assign(value)
    made = LoadedGraph(graph, config, stage)
    made.containers = {name: own.get(here, here) for here, name in names.items()}
    return made


def _devices_of(graph: Graph) -> tuple[str, ...]:
    """The devices of a placed graph, that of its parameters first."""
    found = [device_of(param.place) for param in graph.params]
    inside: list[Device | None] = []
    for node in graph.nodes:
        inner_nodes(node, lambda inner: inside.append(device_of(inner.place)))
    found += sorted({device for device in inside if device is not None}, key=str)
    return tuple(str(device) for device in dict.fromkeys(found) if device) or Config().devices


@refusing
def load(
    path: str | PathLike[str],
    *,
    share: bool | str | Iterable[str] = False,
    custom_ops: bool | str | Iterable[str] = (),
    **options: Any,
) -> LoadedGraph:
    """A saved graph as a callable: `gc.load("mlp.gir")(x, w)`.

    share        containers of variables that it shares with this program, or True for all.  Without
                 it the variables of the graph are its own; `.containers` says where they live
    custom_ops   names of custom ops of this program that it may call, or True for all.  Their
                 indices are checked then: one that is out of range stops the run
    options      as for gc.compile

    Raises GraphError for a file that is missing, damaged, or asks for more than it may have.
    """
    config = Config.create(**options)
    file = Path(path)
    read = graph_of_text(file, read_text(file), share=share, custom=custom_ops)
    made = LoadedGraph(read.value, config, read.stage)
    made.containers = read.containers
    return made
