"""The step table of a planned graph: a row per kernel, registers as in load/table.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.codegen.kernels import data_params, spec_of
from graphc.codegen.spec import Spec
from graphc.codegen.table.blocks import block_rows
from graphc.codegen.table.check_memory_plan import check_memory_plan
from graphc.codegen.table.check_order import check_order
from graphc.codegen.table.control import control_rows
from graphc.codegen.table.donation import donations, variables
from graphc.codegen.table.segments import segments
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import memory
from graphc.ir.op import Alias, Host
from graphc.ir.place import Buffer, Region
from graphc.ir.regions import scheduled_graphs
from graphc.ir.size_answers import by_example
from graphc.ir.sizes import hint_of, least
from graphc.ir.types import AnyType, Type, leaves
from graphc.ir.verify import broken
from graphc.ops.control.host_calls import function_called
from graphc.runtime.load.program import ALIGNMENT, HostCall, Origin, Slot
from graphc.runtime.load.table import (
    ARENA,
    CONSTANTS,
    FIRST_PARAM,
    MOST_GRAIN,
    Operand,
    TableBuilder,
)

if TYPE_CHECKING:
    from graphc.codegen.compiler import Compiler
    from graphc.codegen.gpu.build import CudaCompiler
    from graphc.runtime.cuda.gemm import Gemm


Scope = dict[str, Operand]  # where the bases of a graph's buffers lie: p0.., r0.., arena, c


class TableWriter:
    """Writes the rows of one graph and of its regions, each in a scope of its own."""

    def __init__(
        self,
        graph: Graph,
        config: Config,
        compiler: Compiler | CudaCompiler,
        channels: Mapping[str, int] | None = None,
    ) -> None:
        self.graph = graph
        self.channels = channels or {}
        self.config = config
        self.compiler: Any = compiler
        self.table = TableBuilder()
        self.words: list[int] = []
        self.word_offsets: dict[tuple[int, ...], int] = {}
        self.kernels: dict[str, int] = {}
        self.origins: dict[int, Origin] = {}
        self.hosts: dict[str, HostCall] = {}
        self.host_shapes: list[list[tuple[int, ...]]] = []  # what each takes, then what it gives
        self.products: dict[int, Gemm] = {}
        self.extents: dict[int, tuple[tuple[int, bool], ...]] = {}
        self.counted = False  # the rows are those of a loop of a known length
        self.registers = 0
        self.stacks = 0
        self.used = 0  # registers of the loops around the current row
        self.variables = variables(graph)
        self.donated = donations(graph, config.donate)
        if config.verify >= 2 and any(p >= 0 for p in self.donated):
            with by_example():
                check_memory_plan(
                    graph, self.donated
                )  # which the plan's own promise knows nothing of
        known = len(graph.params) + len(graph.results) + len(self.variables)
        self.first_register = FIRST_PARAM + known
        self.scope = self.outermost()
        self.moved: dict[tuple[Node, int], Operand] = {}  # what lies elsewhere than planned
        self.current = graph
        self.in_order = True  # or in segments, in any order that they allow

    def outermost(self) -> Scope:
        groups = {"p": self.graph.params, "r": self.graph.results, "v": self.variables}
        names = [f"{letter}{k}" for letter, group in groups.items() for k in range(len(group))]
        scope = {name: (FIRST_PARAM + number, 0) for number, name in enumerate(names)}
        taken = {f"r{k}": scope[f"p{p}"] for k, p in enumerate(self.donated) if p >= 0}
        return {"arena": (ARENA, 0), "c": (CONSTANTS, 0), **scope, **taken}

    def specs(self) -> Iterator[Spec]:
        """The kernels that the rows will call."""
        for graph in scheduled_graphs(self.graph):
            for node in graph.nodes:
                if node.op.traits.kernel:
                    yield spec_of(node, self.config)

    def write(self, answered: Mapping[Node, Node] | None = None) -> None:
        """Write the table; `answered` as for `segments`."""
        registers = {name: place[0] for name, place in self.scope.items()}
        found = segments(self.graph, registers, answered)
        if self.config.verify >= 2 and len(found) > 1:
            with by_example():
                check_order(self.graph, self.donated, found)
        *pieces, last = found
        self.in_order = not pieces
        for piece in pieces:
            self.node_rows(piece.nodes)
            self.table.end(*piece.releases)
        self.node_rows(last.nodes)
        self.result_rows(self.graph)
        self.assign_rows()
        self.table.end()

    def graph_rows(self, graph: Graph) -> None:
        """The rows of a graph whose bases lie where the scope says."""
        self.current = graph
        self.node_rows(graph.nodes)
        self.result_rows(graph)

    def node_rows(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.op.traits.kernel:
                self.kernel_row(node, spec_of(node, self.config))
            elif node.op.traits.blocks:
                block_rows(self, node)
            elif (rows := control_rows(node.op.traits)) is not None:
                rows(self, node)
            elif isinstance(node.op.lower, Host):
                self.host_row(node)
            elif not node.op.traits.idle and not isinstance(node.op.lower, Alias):
                raise broken(self.current, node, f"%{node.id} is nothing that runs")

    def result_rows(self, graph: Graph) -> None:
        for number, result in enumerate(graph.results):
            self.result_row(number, result)

    @contextmanager
    def inside(self, scope: Scope) -> Iterator[None]:
        """Rows of a region; the registers taken there are free again afterwards."""
        outer = self.scope, self.used, self.current
        self.scope = {"c": (CONSTANTS, 0), **scope}
        yield
        self.scope, self.used, self.current = outer

    @contextmanager
    def counting(self, counted: bool) -> Iterator[None]:
        """Rows of a loop of a known length, or of one whose operands are no slices."""
        outer, self.counted = self.counted, counted
        yield
        self.counted = outer

    def base(self, region: Region, extra: int = 0) -> Operand:
        register, start = self.scope[region.base]
        return register, start + region.offset + extra

    def place(self, node: Node, leaf: int = 0) -> Operand:
        """Where a value of the current graph lies."""
        if self.moved and not leaf and (found := self.moved.get(memory(node))) is not None:
            return found
        return self.base(buffer_of(node).regions[leaf])

    def register(self) -> int:
        """A scratch base register that nothing around the current row uses."""
        self.used += 1
        self.registers = max(self.registers, self.used)
        return self.first_register + self.used - 1

    def kernel_row(self, node: Node, spec: Spec) -> None:
        inputs = data_params(node)
        results = list(buffer_of(node).regions)
        places = {
            "in": [self.place(n) for n in node.inputs[: len(inputs)]],
            "out": [self.base(region) for region in results],
        }
        with by_example():
            fits = spec.workspace <= workspace_bytes(node)
        if not fits:
            raise GraphError(
                f"%{node.id} needs {spec.workspace} bytes of workspace", details=node.describe()
            )
        if all(r.nbytes == 0 for r in results):
            return
        step: Spec | None = spec
        while step is not None:
            operands = []
            for kind, index, extra in step.operands:
                if kind == "work":
                    scratch = node.inputs[-1] if spec.workspace else node
                    operands.append(self.base(buffer_of(scratch).regions[0], index))
                else:
                    register, start = places[kind][index]
                    operands.append((register, start + extra))
            for row in self.rows_of(step, operands):
                self.note(row, node)
            step = step.then

    def whole_rows(self, node: Node, spec: Spec, constants: Iterable[Node]) -> None:
        """The kernel of a node with regions, on its operands and then constants of its body."""
        given = [self.place(n) for n in node.inputs]
        given += [self.base(buffer_of(n).regions[0]) for n in constants]
        places = {"in": given, "out": [self.base(region) for region in buffer_of(node).regions]}
        operands = [places[kind][index] for kind, index, _ in spec.operands]
        for row in self.rows_of(spec, operands):
            self.note(row, node)

    def host_row(self, node: Node) -> None:
        """A call of Python: a kernel by an address that each process gives it."""
        if self.config.backend == "cuda":
            raise GraphError(
                f"{node.op.name} calls Python, which a GPU does not run",
                details=node.describe(),
                location=node.loc,
                hint='add "cpu:0" to the devices: it runs there',
            )
        call = partial(node.op.reference, **node.attrs.values_dict)
        slots = [_slots(kind) for kind in (*(n.type for n in node.inputs), node.type)]
        operands = tuple(slot for each in slots[:-1] for slot in each)
        kinds = [leaf for n in (*node.inputs, node) for leaf in leaves(n.type)]
        self.host_shapes.append([kind.dims for kind in kinds if isinstance(kind, Type)])
        symbol = f"python{len(self.hosts)}"
        attrs = node.attrs
        resource = (attrs["resource"], attrs["method"]) if "resource" in attrs else None
        program = None
        if isinstance(node.op.lower, Host) and node.op.lower.is_program:
            program = function_called(node.op.name, attrs["function"]).program  # type: ignore[attr-defined]
        origin = origin_of(node)
        self.hosts[symbol] = HostCall(call, operands, slots[-1], origin, resource, program)
        places = [self.place(n) for n in node.inputs]
        places += [self.base(region) for region in buffer_of(node).regions]
        row = self.table.call(self.kernels.setdefault(symbol, len(self.kernels)), places)
        self.note(row, node)

    def note(self, row: int, node: Node) -> None:
        """A row that fails names this node."""
        self.origins[row] = origin_of(node)

    def rows_of(self, spec: Spec, operands: list[Operand]) -> list[int]:
        if spec.patch is not None:
            return self.update_rows(spec, *spec.patch, operands)
        return self.plain_rows(spec, operands)

    def plain_rows(self, spec: Spec, operands: list[Operand]) -> list[int]:
        if spec.kind == "copy":
            sources, targets = operands[: len(spec.params)], operands[len(spec.params) :]
            moves = zip(spec.params, targets, sources, strict=True)
            return [self.table.copy(*move) for move in moves if move[1] != move[2]]
        if spec.launches:
            return self.launch_rows(spec, operands)
        symbol = self.compiler.add(spec)
        row = self.table.call(
            self.kernels.setdefault(symbol, len(self.kernels)),
            operands,
            units=spec.units,
            grain=least(spec.grain, MOST_GRAIN),
            poll=spec.poll,
            params=self.params(spec.params),
        )
        return [row]

    def launch_rows(self, spec: Spec, operands: list[Operand]) -> list[int]:
        """A row per launch: blocks in the place of units, threads in that of the grain."""
        rows, used = [], 0
        for launch in spec.launches:
            symbol = self.compiler.launch(launch)
            given = operands[used : used + len(launch.operands)]
            used += len(given)
            row = self.table.call(
                self.kernels.setdefault(symbol, len(self.kernels)),
                given,
                units=launch.blocks,
                grain=launch.threads,
                params=self.params(launch.params),
            )
            rows.append(row)
            if self.counted:
                self.extents[row] = tuple(
                    (count * dtype.itemsize, kind != "in")
                    for (dtype, count), (kind, *_) in zip(
                        launch.buffers, launch.operands, strict=True
                    )
                )
        if spec.product is not None:
            self.products[rows[-1]] = spec.product
        return rows

    def update_rows(
        self, spec: Spec, param: int, patch: Spec, operands: list[Operand]
    ) -> list[int]:
        """Only the elements that change, if the rest lies there already: known here or at run."""
        source, target = operands[param], operands[spec.operands.index(("out", 0, 0))]
        if source == target:
            return self.plain_rows(patch, operands)
        if source[0] < self.first_register:  # only those of carries may point to one place
            return self.plain_rows(spec, operands)
        skip = self.table.same(source, target)
        rows = self.plain_rows(patch, operands)
        end = self.table.jump()
        self.table.patch(skip, self.table.position)
        rows += self.plain_rows(spec, operands)
        self.table.patch(end, self.table.position)
        return rows

    def params(self, values: tuple[int, ...]) -> int:
        if not values:
            return 0
        found = self.word_offsets.get(values)
        if found is None:
            found = self.word_offsets[values] = len(self.words)
            self.words.extend(values)
        return found

    def result_row(self, number: int, result: Node) -> None:
        """Copy a result that lies elsewhere (an argument, a constant, or an earlier result)."""
        region = buffer_of(result).regions[0]
        target, source = self.scope[f"r{number}"], self.place(result)
        if target != source and region.nbytes:
            self.table.copy(region.nbytes, target, source)

    def assign_rows(self) -> None:
        """Copy the new values of variables that do not lie there yet, as if all at once."""
        stored = [nodes["assign"] for nodes in self.variables.values() if "assign" in nodes]
        pending = {self.place(n): (self.place(n.inputs[0]), n) for n in stored}
        pending = {to: (source, n) for to, (source, n) in pending.items() if source != to}
        while pending:
            sources = [source for source, _ in pending.values()]
            free = next((to for to in pending if to not in sources), None)
            if free is None:  # variables that change places: one of them waits in scratch memory
                free, (_, node) = next(iter(pending.items()))
                scratch = buffer_of(node).scratch
                assert scratch is not None
                self.copy(node, self.base(scratch), free)
                for to, (source, other) in pending.items():
                    if source == free:
                        pending[to] = self.base(scratch), other
            source, node = pending.pop(free)
            self.copy(node, free, source)

    def copy(self, node: Node, target: Operand, source: Operand) -> None:
        if nbytes := buffer_of(node).regions[0].nbytes:
            self.table.copy(nbytes, target, source)

    def constants(self) -> np.ndarray[Any, Any]:
        """All constants at their offsets, 64-byte aligned; zeros between and behind them."""
        scheduled = [n for graph in scheduled_graphs(self.graph) for n in graph.nodes]
        nodes = [n for n in scheduled if n.op.traits.stored]
        size = max((end_of(n) for n in nodes), default=0)
        size += -size % ALIGNMENT  # as files hold them
        blob = np.zeros(size + ALIGNMENT, np.uint8)
        start = -blob.__array_interface__["data"][0] % ALIGNMENT
        blob = blob[start : start + size]
        for node in nodes:
            region = buffer_of(node).regions[0]
            if region.nbytes:
                made = node.op.reference(**node.attrs.values_dict)
                data = np.ascontiguousarray(made).reshape(-1).view(np.uint8)
                blob[region.offset : region.offset + region.nbytes] = data
        return blob


def origin_of(node: Node) -> Origin:
    file, line = node.loc or ("", 0)
    return Origin(node.summary(), file, line)


def _slots(kind: AnyType) -> tuple[Slot, ...]:
    tensors = [leaf for leaf in leaves(kind) if isinstance(leaf, Type)]
    return tuple(Slot("", leaf.dtype.name, tuple(map(hint_of, leaf.dims))) for leaf in tensors)


def workspace_bytes(node: Node) -> int:
    """The scratch memory a kernel was given."""
    last = node.inputs[-1] if node.inputs else None
    if last is None or not last.op.traits.workspace or not isinstance(last.type, Type):
        return 0
    return last.type.nbytes


def buffer_of(node: Node) -> Buffer:
    assert isinstance(node.place, Buffer), f"{node!r} has no buffer"
    return node.place


def end_of(node: Node) -> int:
    region = buffer_of(node).regions[0]
    return region.offset + region.nbytes
