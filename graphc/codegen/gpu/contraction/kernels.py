"""Contractions on a GPU: which kernels run a fused contraction, and their sources.

tile     blocks of the result through shared memory      thin     few rows or few columns
matrix   the same on tensor cores, for f16 and bf16      group    the same by four warps, on sm_90

Sums of a few products are left to `lowering.direct`, a loop for each element of the result.

Long sums of few tiles are split between blocks; a second launch adds the parts, in order.
"""

from __future__ import annotations

from graphc.base.record import replace
from graphc.codegen.gemm.form import normalise, total
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.contraction.block import BlockSource
from graphc.codegen.gpu.contraction.finish import Finish, accumulator_of, buffers_of
from graphc.codegen.gpu.contraction.group import GroupSource
from graphc.codegen.gpu.contraction.matrix import MatrixSource
from graphc.codegen.gpu.contraction.text import Lines
from graphc.codegen.gpu.contraction.thin import ThinSource, thin_cut
from graphc.codegen.gpu.contraction.tile import PipelinedTile, TileSource
from graphc.codegen.gpu.contraction.tile_choice import WARP, Cut, Group, Matrix, Thin, Tile, cut
from graphc.codegen.gpu.emit import HEADER, maker
from graphc.codegen.gpu.launch import Buffers, Launch, Operand
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.contraction import Form, form_of
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.errors import GraphError
from graphc.ir.graph import Graph
from graphc.ir.types import BF16, F16, F32, DType

IMPORTS = """\
from graphc.codegen.gpu.contraction.device import dots, fixed, is_aligned, keep, load, outer, plus
from graphc.codegen.gpu.contraction.device import read, repeat, widen, widen_bf16, widen_f16, write
from graphc.codegen.gpu.contraction.device import write_column
"""
FURTHER_IMPORTS = {  # by what calls them
    "commit_copies(": """\
from graphc.codegen.gpu.contraction.mma import commit_copies, copy, wait_for_groups
""",
    " products_": """\
from graphc.codegen.gpu.contraction.mma import products_bf16, products_f16
""",
    " group_products_": """\
from graphc.codegen.gpu.contraction.wgmma import first_atom, group_products_bf16, group_products_f16
from graphc.codegen.gpu.contraction.wgmma import group_products_tf32, settled, show_copies
from graphc.codegen.gpu.contraction.wgmma import wait_for_products
""",
}

Source = BlockSource | ThinSource

Launches = tuple[tuple[Launch, ...], int]


def contract_launches(
    region: Graph,
    chip: Chip,
    strict: bool = False,
    check_finite: bool = False,
    ordered: bool = False,
    tf32: bool = False,
) -> Launches | None:
    """The launches that run a region with a contraction, and the bytes of workspace they share.

    Buffers are the parameters of the region, its results, and the workspace.  Results may lie where
    the region reads them element by element.  `ordered`: as the ordered core of a CPU sums.
    `tf32`: products of f32 may be of the first 10 bits of fractions, where that is faster.  None
    where a loop over the result is what to run.  Raises GraphError for constants packed for a CPU.
    """
    form = form_of(region)
    if any(read.source.op.traits.unpacks for read in form.reads):
        raise GraphError("constants are packed for another machine", hint="compile the graph anew")
    if any(form.computed) or list(form.shown) != sorted(form.shown):
        raise GraphError("kernels are fused for another machine", hint="compile the graph anew")
    sums = tensor_type(form.node)
    if not all(extent for _, extent, *_ in form.dims) or sums.dtype.is_complex or is_short(form):
        return None
    if form.element in (F16, BF16) and sums.dtype.compute is not F32:
        return None
    contract = Contract(region, form, chip, strict, check_finite, tf32)
    return contract.in_order() if ordered else contract.launches()


def is_short(form: Form) -> bool:
    """Are sums so short, and is so little of what they read shared, that a thread for each of them
    costs less than tiles? Windows overlap, so that the cache serves them."""
    groups = normalise(form.normal(), WARP)
    steps, few = total(groups.k), min(total(groups.m), total(groups.n))
    if steps < tuned.tiled_sum:
        return True
    if len(groups.k) > 1:
        return few <= tuned.thin_rows and steps <= tuned.window_steps
    return few == 1 and steps < tuned.thin_steps


def operands_of(region: Graph) -> tuple[Operand, ...]:
    """Where the buffers of a kernel lie: parameters, then results."""
    operands: list[Operand] = [("in", k, 0) for k in range(len(region.params))]
    return (*operands, *(("out", k, 0) for k in range(len(region.results))))


class Contract:
    """Makes the launches of one region."""

    def __init__(
        self,
        region: Graph,
        form: Form,
        chip: Chip,
        strict: bool = False,
        check: bool = False,
        tf32: bool = False,
    ) -> None:
        self.region, self.form, self.chip = region, form, chip
        self.strict, self.check, self.tf32 = strict, check, tf32
        self.accumulator: DType = accumulator_of(tensor_type(form.node).dtype)
        self.buffers: Buffers = tuple((b.dtype, b.size) for b in buffers_of(region))
        self.operands = operands_of(region)

    def launches(
        self, tile: Tile | Matrix | Group | None = None, splits: int | None = None
    ) -> Launches:
        """The launches for a tile, or for what seems best."""
        made: Cut | None = None
        if tile is None:
            made = thin_cut(self.form, self.chip, 1 if self.strict else splits)
        return self.of(made or cut(self.form, self.chip, tile, splits, self.strict, self.tf32))

    def of(self, made: Cut) -> Launches:
        """The launches for a cut."""
        finish = Finish(self.region, self.form, made, self.strict, self.check)
        names = [repr(b) for b in finish.buffers]
        if made.splits > 1:
            return self.split_launches(made, finish, names)
        return (self.tiles(made, names, finish.text(), self.buffers, self.operands),), 0

    def in_order(self) -> Launches | None:
        """Each sum in one thread, in the order of k; None where the last piece would be filled up
        with zeros: added to a sum of -0 they make it +0.
        """
        made = cut(self.form, self.chip, strict=True)
        return None if made.k % made.tile.depth else self.launches(made.tile, 1)

    def split_launches(self, made: Cut, finish: Finish, names: list[str]) -> Launches:
        """Parts of sums to the workspace; then their totals, part by part, and what follows."""
        size, count = made.batch * made.m * made.n, len(self.region.params)
        extra = self.accumulator, size * made.splits
        work: Operand = ("work", 0, 0)
        first = self.tiles(
            made,
            [*names[:count], "work"],
            [],
            (*self.buffers[:count], extra),
            (*self.operands[:count], work),
        )
        threads = min(self.chip.threads, tuned.join_threads)
        blocks = max(1, min(tuned.join_blocks, -(-size // threads), self.chip.blocks))
        text = "\n".join([*finish.text(), join_text(made, names, blocks * threads)])
        second = self.launch(text, (*self.buffers, extra), (*self.operands, work), blocks, threads)
        return (first, second), extra[1] * self.accumulator.itemsize

    def tiles(
        self,
        made: Cut,
        names: list[str],
        finish: list[str],
        buffers: Buffers,
        operands: tuple[Operand, ...],
    ) -> Launch:
        """The launch that multiplies."""
        source = self.source(made, names)
        launch = self.launch(
            source.text(finish), buffers, operands, made.blocks, made.tile.threads, source
        )
        if not isinstance(made.tile, Group):
            return launch
        other = made._replace(tile=made.tile.twin)
        twin = self.tiles(other, names, finish, buffers, operands)
        return replace(launch, twin=replace(twin, resident=launch.resident))

    def source(self, made: Cut, names: list[str]) -> Source:
        where = {param: k for k, param in enumerate(self.region.params)}
        a, b = (where[read.source] for read in self.form.reads)
        return source_of(made.tile)(
            self.form, made, self.accumulator, (a, b), names, self.chip.simulated
        )

    def launch(
        self,
        text: str,
        buffers: Buffers,
        operands: tuple[Operand, ...],
        blocks: int,
        threads: int,
        source: Source | None = None,
    ) -> Launch:
        further = (names for call, names in FURTHER_IMPORTS.items() if call in text)
        whole = HEADER.replace("\nhelper =", "".join([IMPORTS, *further, "\nhelper ="]), 1) + text
        block = source if isinstance(source, BlockSource) else None
        return Launch(
            whole,
            maker(whole),
            buffers,
            operands,
            blocks,
            threads,
            exact=self.strict,
            resident=resident(block, threads),
            shared=block.shared if block else 0,
        )


def resident(block: BlockSource | None, threads: int) -> int:
    """Blocks that a processor is to have room for."""
    room = tuned.processor_shared // block.shared if block and block.shared else threads
    return 1 if block and block.is_alone else max(1, min(tuned.resident_threads // threads, room))


def source_of(tile: Tile | Matrix | Group | Thin) -> type[Source]:
    """What writes the kernels of a tile."""
    match tile:
        case Tile(stages=0):
            return TileSource
        case Tile():
            return PipelinedTile
        case Matrix():
            return MatrixSource
        case Group():
            return GroupSource
        case Thin():
            return ThinSource


def join_text(made: Cut, names: list[str], step: int) -> str:
    """The second launch of split sums."""
    size, out = made.batch * made.m * made.n, Lines()

    def element() -> None:
        out.line("total = (work[e],)")
        out.block(
            f"for part in range({size}, {made.splits * size}, {size}):",
            lambda: out.line("total = plus(total, (work[part + e],))"),
        )
        place = [f"e // {made.m * made.n}", f"e // {made.n} % {made.m}", f"e % {made.n}"]
        out.line(f"finish({', '.join([*place, 'total[0]', *names, 'status', 'row'])})")

    def body() -> None:
        out.line(f"# {size} sums of {made.splits} parts")
        out.line("thread = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x")
        out.block(f"for e in range(thread, {size}, {step}):", element)

    out.line("")
    out.block(f"def kernel({', '.join([*names, 'work', 'status', 'row'])}):", body)
    return "\n".join([*out.lines, ""])
