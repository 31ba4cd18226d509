"""Parts of loops and branches that count sizes of their own, each a program (`outline`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.base.record import replace
from graphc.config import Config
from graphc.errors import GraphError
from graphc.forks import fork_safe_lock
from graphc.frontend.compile.data_sizes import Counted, build_counted
from graphc.frontend.trace.trace import Traced
from graphc.frontend.trace.tree import flatten
from graphc.ir.graph import Graph, Node, Reads, map_nodes, map_regions
from graphc.ir.sizes import USUAL_COUNT, Scope, Size, hint_of, scope_of
from graphc.ir.specialise import specialise
from graphc.passes.normalise.cut_phases import sizes_of
from graphc.runtime.call.phased_executable import PhasedExecutable, Refused


def unplaced(region: Graph) -> Graph:
    """The region and those within it for one device, whatever they were to run on."""

    def moved(node: Node, reads: Reads) -> Node:
        made = map_regions(node, unplaced)
        return made.replace(inputs=reads[0], after=reads[1], place=None)

    return map_nodes(region, moved)


class OutlinedProgram:
    """A region that counts sizes, as a function of arrays; it is compiled when it is first called,
    once for all sizes."""

    def __init__(self, region: Graph, counts: tuple[str, ...], config: Config) -> None:
        self.region, self.counts = unplaced(region), counts
        self.config = replace(config, dump=None, devices=("cpu:0",), donate=(), constraints=())
        self.__name__ = region.name
        self._lock = fork_safe_lock()
        self._made: Counted | None = None

    def __call__(self, *arrays: Any) -> Sequence[Any]:
        try:
            return self.compiled().phased.run(arrays)
        except Refused as other:
            raise GraphError(
                other.message,
                hint="no step of a loop is traced again: decide with gc.cond or np.where, or give "
                "the sizes (size=)",
            ) from None

    def compiled(self) -> Counted:
        """What it is compiled to. Raises GraphError for what cannot be compiled so."""
        with self._lock:
            if self._made is None:
                self._made = build_counted(self.traced(), self.config)
            return self._made

    def program(self) -> PhasedExecutable:
        """What a file holds of it: also what is for no and for one element."""
        made = self.compiled()
        made.complete()
        return made.phased

    def traced(self) -> Traced:
        """The region as a graph of its own, whose sizes are of a scope of its own."""
        nodes = (*self.region.params, *self.region.nodes)
        sizes = list(dict.fromkeys(size for node in nodes for size in sizes_of(node)))
        outer = scope_of([size for size in sizes if isinstance(size, Size)]) or Scope()
        told = {n for p in self.region.params for size in sizes_of(p) for n in size.symbols()}
        names = {name for size in sizes for name in size.symbols()}
        names -= outer.inner - {*self.counts} - told  # what regions inside count
        scope = Scope()
        binding = {
            name: scope.symbol(name, max(2, hint_of(outer.symbols.get(name, USUAL_COUNT))))
            for name in sorted(names | {*self.counts})
        }
        graph = specialise(self.region, binding)
        for guard in outer.guards.values():  # what Python decided while it was traced
            if guard.difference.symbols() <= names:
                scope.decide(guard.difference.value(binding), guard.relation, guard.where)
        split = len(self.counts)
        counts = dict(zip(self.counts, graph.results, strict=False))
        alone = graph.replace(results=graph.results[split:], result_names=())
        return Traced(alone, flatten(())[1], 0.0, counts, scope)
