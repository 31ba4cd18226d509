"""From a planned graph to something that runs: compile what is new, then write the step table.

specs -> object code (`compiler`)
node order -> rows of the step table, constants -> one blob, all of it -> Image -> Executable
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base.record import replace
from graphc.codegen.compiler import Compiled, Compiler, renamed
from graphc.codegen.llvm import kernel as llvm
from graphc.codegen.llvm.target import Target, assembly, target_of
from graphc.codegen.table.holes import Openings
from graphc.codegen.table.messages import channels_of
from graphc.codegen.table.segments import answered
from graphc.codegen.table.steps import TableWriter
from graphc.config import Config
from graphc.errors import STATUS, GraphError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import largest_live, peak_bytes, planned_bytes
from graphc.ir.place import parse_device
from graphc.ir.sizes import Size, hint_of, scope_of
from graphc.ir.types import Type, leaves
from graphc.runtime.call.execute import Executable
from graphc.runtime.devices.device import needed_features
from graphc.runtime.devices.multi_device import executable
from graphc.runtime.devices.registry import check_device
from graphc.runtime.load.program import UNLIMITED, Channel, Image, Origin, Slot, StateSlot
from graphc.runtime.load.size_formulas import Holes

if TYPE_CHECKING:
    from graphc.codegen.gpu.build import CudaCompiler

MOST_LISTED = 8  # values that an error may have to name


def slots(nodes: Iterable[Node], names: Iterable[str]) -> tuple[Slot, ...]:
    made = []
    for node, name in zip(nodes, names, strict=True):
        assert isinstance(node.type, Type)
        made.append(Slot(name, node.type.dtype.name, tuple(map(hint_of, node.type.dims))))
    return tuple(made)


def state_slot(nodes: Mapping[str, Node]) -> StateSlot:
    """A variable from its read and assign nodes."""
    node = next(iter(nodes.values()))
    (slot,) = slots((node,), (node.attrs["name"],))
    return StateSlot(slot, node.attrs["container"], "read" in nodes, "assign" in nodes)


def build(program: Graph | Program, config: Config) -> tuple[Executable, Compiled]:
    """Compile a planned program and make it runnable."""
    image, compiled = build_image(program, config)
    return executable(image, threads=config.threads), compiled


def build_image(program: Graph | Program, config: Config) -> tuple[Image, Compiled]:
    """The image of a planned program: everything a process needs to run it, as data."""
    compilers, writers, channels = written(program, config)
    first, *others = compilers.images(writers)
    stacks = stack_bytes(program, config)
    carried = tuple([replace(c, nbytes=hint_of(c.nbytes)) for c in channels.values()])
    room = UNLIMITED if isinstance(stacks, Size) else stacks
    first = replace(first, channels=carried, stack_bytes=room)
    image = replace(first, others=tuple(others))
    shapes = [
        leaf.dims for p in program.params for leaf in leaves(p.type) if isinstance(leaf, Type)
    ]
    scope = scope_of(extent for dims in shapes for extent in dims)
    if scope is not None:
        image = opened(image, writers, tuple(channels.values()), stacks, Openings(scope), shapes)
    return image, compilers.cpu.result


def stack_bytes(program: Graph | Program, config: Config) -> int:
    """What the stacks of loops may grow to: what a memory limit leaves."""
    if config.memory_limit is not None:
        return config.memory_limit - planned_bytes(program)
    return UNLIMITED if config.stack_bytes is None else config.stack_bytes


def opened(
    image: Image,
    writers: Sequence[TableWriter],
    channels: Sequence[Channel],
    stacks: int,
    openings: Openings,
    shapes: Sequence[Sequence[int]],
) -> Image:
    """The image with what sizes decide left open."""
    made = []
    for each, writer in zip(image.images, writers, strict=True):
        table, table_holes = openings.words(writer.table.words)
        words, word_holes = openings.words(writer.words or [0])
        arena = peak_bytes(writer.graph)
        holes = Holes(
            table_holes,
            word_holes,
            openings.extents(dims_of(writer.graph.params)),
            openings.extents(dims_of(writer.graph.results)),
            openings.formula(arena) if isinstance(arena, Size) else -1,
        )
        called = [openings.extents(shapes) for shapes in writer.host_shapes]
        hosts = tuple([(number, *hole) for number, found in enumerate(called) for hole in found])
        holes = replace(holes, hosts=hosts)
        made.append(replace(each, table=table, words=words, holes=holes))
    first, *others = made
    assert first.holes is not None
    _, carried = openings.words([channel.nbytes for channel in channels])
    room = openings.formula(stacks) if isinstance(stacks, Size) else -1
    first = replace(first, holes=replace(first.holes, channels=carried, stacks=room))
    return replace(first, others=tuple(others), formulas=openings.finish(shapes))


def dims_of(nodes: Iterable[Node]) -> list[tuple[int, ...]]:
    return [node.type.dims for node in nodes if isinstance(node.type, Type)]


def written(
    program: Graph | Program, config: Config
) -> tuple[Compilers, list[TableWriter], dict[str, Channel]]:
    """The step tables of a planned program, and the texts of its kernels, which are not compiled
    yet; with the channels between its devices."""
    graphs = program.graphs if isinstance(program, Program) else (program,)
    compilers = Compilers(config)
    channels = channels_of(graphs, bool(config.donate))
    numbers = {name: number for number, name in enumerate(channels)}
    writers = [writer_of(graph, config, compilers, numbers) for graph in graphs]
    for writer in writers:
        writer.compiler.need(writer.specs())
    replies = answered(program)
    for writer in writers:
        writer.write(replies)
    return compilers, writers, channels


class Compilers:
    """The compiler of each kind of device that a program has."""

    def __init__(self, config: Config) -> None:
        self.config = config
        if config.target.startswith("cuda") and not any(map(_is_gpu, config.devices)):
            raise GraphError(
                f"target {config.target} is for GPUs, and none of the devices is one",
                hint="add gpu:0 to the devices, or name no devices at all",
            )
        self.cpu = Compiler(config.for_device(None))
        self.gpu: CudaCompiler | None = None

    def of(self, graph: Graph) -> tuple[str, Config, Compiler | CudaCompiler]:
        """What runs the graph ("cpu", "null" or "cuda"), with what options and compiler.

        Raises GraphError for a device that there is not.
        """
        device = graph.device
        runs_on = check_device(device.type, device.index).runs_on if device is not None else "cpu"
        config = self.config.for_device(device)
        if runs_on != "cuda":
            return runs_on, config, self.cpu
        if self.gpu is None:
            from graphc.codegen.gpu.build import CudaCompiler

            self.gpu = CudaCompiler(config)
        return runs_on, config, self.gpu

    def images(self, writers: Iterable[TableWriter]) -> list[Image]:
        """The images of all devices, of tables that are written."""
        compiled, target = self.cpu.finish(), self.cpu.target
        # In the order of need: what calls a function of another object comes after it.
        linked = tuple((code, tuple(symbols)) for code, symbols in compiled.objects.items())
        support = compiled.support
        if self.gpu is None:
            return [image_of(writer, target, linked, support) for writer in writers]
        from graphc.codegen.gpu.build import on_gpu

        compiled.gpu = gpu = self.gpu.finish()
        compiled.compiled += gpu.compiled
        compiled.cached += gpu.cached
        compiled.seconds += gpu.seconds
        return [
            on_gpu(image_of(writer, target, (), support), gpu)
            if writer.compiler is self.gpu
            else image_of(writer, target, linked, support)
            for writer in writers
        ]


def _is_gpu(name: str) -> bool:
    device = parse_device(name)
    return check_device(device.type, device.index).runs_on == "cuda"


def writer_of(
    graph: Graph, config: Config, compilers: Compilers, channels: dict[str, int]
) -> TableWriter:
    """What writes the step table of a device. Raises GraphError for a device that there is not."""
    runs_on, config, compiler = compilers.of(graph)
    if runs_on == "null":
        from graphc.codegen.null_device import NullWriter

        return NullWriter(graph, config, compiler, channels)
    return TableWriter(graph, config, compiler, channels)


def image_of(
    writer: TableWriter,
    target: Target,
    objects: tuple[tuple[bytes, tuple[str, ...]], ...],
    support: bytes,
) -> Image:
    """The image of the share of one device."""
    graph = writer.graph
    device = graph.device
    return Image(
        name=graph.name,
        params=slots(graph.params, [p.attrs["name"] for p in graph.params]),
        results=slots(graph.results, graph.result_names),
        table=_at_hand(writer.table.words),
        words=_at_hand(writer.words or [0]),
        constants=writer.constants(),
        kernels=tuple(writer.kernels),
        objects=objects,
        support=support,
        arena_bytes=hint_of(peak_bytes(graph)),
        threads=writer.config.thread_count,
        registers=writer.registers,
        donated=writer.donated if any(p >= 0 for p in writer.donated) else (),
        variables=tuple(map(state_slot, writer.variables.values())),
        origins=writer.origins,
        reasons=STATUS,
        cpu=target.cpu,
        features=needed_features(target.features, target.vector_bits, target.triple),
        triple=target.triple,
        device=device.short if device is not None else "cpu:0",
        largest=largest_values(graph) if writer.config.backend == "cuda" else (),
        guarded=writer.config.check_finite,
        products=writer.products,
        extents=writer.extents,
        hosts=writer.hosts,
    )


def _at_hand(words: Sequence[int]) -> np.ndarray[Any, Any]:
    """Words as numbers: of those that are open, for the sizes at hand."""
    is_open = any(kind is not int for kind in set(map(type, words)))
    return np.array([hint_of(word) for word in words] if is_open else words, np.int64)


def largest_values(graph: Graph) -> tuple[tuple[int, Origin], ...]:
    """What takes most of the arena, for the message of a device that is full."""
    found = largest_live(graph, MOST_LISTED)
    return tuple((nbytes, Origin(node.summary(), *(node.loc or ("", 0)))) for nbytes, node in found)


def kernel_sources(compiled: Compiled) -> dict[str, str]:
    """The readable source of every kernel, by file name; what Numba compiles where it does."""
    from graphc.codegen.numba import route as numba_route
    from graphc.codegen.python import source

    files = {}
    for symbol, kernel in compiled.kernels.items():
        emit = numba_route.kernel_text if symbol in compiled.by_numba else source.emit
        files[f"{symbol}.py"] = emit(renamed(kernel, symbol))
    if compiled.gpu is not None:
        from graphc.codegen.gpu.build import sources

        files.update(sources(compiled.gpu))
    return files


def kernel_versions(compiled: Compiled, config: Config) -> dict[str, list[str]]:
    """Of what each kernel has versions, for one of which a call's sizes decide: of its loops, and
    of ways through a product."""
    target = target_of(config.for_device(None))
    written = {k: v for k, v in compiled.kernels.items() if k not in compiled.by_numba and v.sizes}
    found = {symbol: llvm.versions_of(kernel, target) for symbol, kernel in written.items()}
    for symbol, ways in compiled.ways.items():
        found[symbol] = [*ways, *found.get(symbol, [])]
    return found


def kernel_texts(compiled: Compiled, config: Config) -> dict[str, str]:
    """Files of a dump: readable source, LLVM IR and assembly (or PTX) of every kernel, as the
    compiler that made it has them."""
    from graphc.codegen.numba import route as numba_route

    target = target_of(config.for_device(None))
    files = kernel_sources(compiled)
    for symbol, kernel in compiled.kernels.items():
        if symbol in compiled.by_numba:
            files.update(numba_route.kernel_files(renamed(kernel, symbol)))
            continue
        text = llvm.emit(renamed(kernel, symbol), target)
        files[f"{symbol}.ll"] = text
        files[f"{symbol}.s"] = assembly([text], target, config.opt)
    for symbol, text in compiled.texts.items():
        if symbol.startswith("graphc_"):  # parts of contraction cores
            files[f"{symbol}.ll"] = text
    if compiled.gpu is not None:
        from graphc.codegen.gpu.build import ptx_texts

        files.update(ptx_texts(compiled.gpu))
    return files
