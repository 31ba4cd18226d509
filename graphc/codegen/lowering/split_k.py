"""Products of few sums in parts: every part sums some steps of k, and a last kernel adds them up.

    y = x W + b, relu             parallel for part p of k:     s[p, :] = x[p] W[p]
                                  for j:                        y[j] = relu(sum of s[:, j] + b[j])

Threads that share the columns of W would each read short pieces of its rows; a part is one piece of
memory, as fast as the second-level cache can be read, and the same thread reads it in every call.
How many parts there are depends on the sizes alone, and with them the order of the sums.
"""

from __future__ import annotations

from graphc.codegen import gemm as contract
from graphc.codegen.gemm.layout import Flag, Word
from graphc.codegen.gemm.packed import hardware_for
from graphc.codegen.lowering.contraction import EpilogueLowering, Form
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.ir.sizes import Size
from graphc.loops.nest import Buffer, Expr, Kernel


def parts_of(form: Form, plan: contract.Plan, config: Config) -> int:
    """Into how many parts the sums of a planned product are cut; 1 where that does not pay."""
    words, (a, b) = plan.params, form.computed
    steps = [dim.extent for dim in form.role("k") if dim.extent != 1]
    if a or b or config.strict or len(steps) != 1 or not _has_few_sums(words):
        return 1
    same = form.core == form.accumulator.name == tensor_type(form.node).dtype.name
    if not same or tensor_type(form.node).size != words[Word.M] * words[Word.N]:
        return 1
    across = words[Word.N] + (words[Word.M] if words[Word.M] > 1 else 0)
    nbytes = across * steps[0] * form.element.itemsize
    least = int(tuned.split_share * hardware_for(config).l2)
    most = max(2, nbytes // least) if nbytes >= least else 1
    most = min(tuned.split_parts, most, steps[0] // tuned.split_steps)
    return next((parts for parts in range(most, 1, -1) if steps[0] % parts == 0), 1)


def _has_few_sums(words: tuple[int, ...]) -> bool:
    """Whether threads had better share k: of one row, or of so few rows and columns that
    one thread reads all of an operand, and whose sums are rows of the result."""
    flags, rows, columns = words[Word.FLAGS], words[Word.M], words[Word.N]
    if any(isinstance(word, Size) for word in (flags, rows, columns)):
        return False
    if flags & Flag.ROWS:
        return rows == 1 and not flags & (Flag.TILE | Flag.PACK_A)
    is_plain = not flags & ~(Flag.SAME_ROWS | Flag.SAME_COLUMNS | Flag.PACK_A)
    most = min(tuned.split_rows, words[Word.K] // tuned.split_depth)
    are_few = rows * columns <= tuned.split_results or (
        rows <= most and columns <= tuned.split_columns
    )
    return is_plain and rows > 1 and are_few and words[Word.LEAD_C] == columns


def plan_parts(form: Form, parts: int, config: Config) -> contract.Plan:
    """The product as a batch of parts, whose sums lie one after the other."""
    whole = form.normal()
    (k,) = (dim for dim in whole.k if dim.extent != 1)
    steps = k.extent // parts
    size = tensor_type(form.node).size
    batch = contract.Dim(parts, k.a * steps, k.b * steps, size)
    cut = whole._replace(batch=(batch,), k=(k._replace(extent=steps),))
    return contract.plan(cut, hardware_for(config), threads=config.thread_count)


def whole_plan(form: Form, config: Config) -> contract.Plan:
    """Where the product's elements lie for a kernel that runs over all of them at once."""
    return contract.plan(form.normal(), hardware_for(config), epilogue=True)


class PartialSums(EpilogueLowering):
    """Builds the kernel that adds the parts up and computes the rest of the region."""

    def __init__(
        self, region: Graph, form: Form, plan: contract.Plan, name: str, parts: int
    ) -> None:
        super().__init__(region, form, plan, name)
        self.parts = parts

    def lower(self, strict: bool, check_finite: bool = False) -> Kernel:
        kernel = super().lower(strict, check_finite)
        sums = kernel.buffers[0]
        all_of_them = Buffer(0, sums.dtype, sums.size * self.parts, sums.mode)
        return Kernel(
            kernel.name,
            (all_of_them, *kernel.buffers[1:]),
            kernel.params,
            kernel.body,
            units=kernel.units,
            strict=kernel.strict,
        )

    def tile_reader(self, tile: Buffer, i: Expr, j: Expr, lead: Expr) -> None:
        b = self.b

        def read(_: tuple[Expr, ...]) -> Expr:
            loads = [b.load(tile, i * lead + j + p * tile.size) for p in range(self.parts)]
            while len(loads) > 1:
                loads = [
                    b.add(*loads[k : k + 2]) if loads[k + 1 :] else loads[k]
                    for k in range(0, len(loads), 2)
                ]
            return loads[0]

        self.elements.bind(self.form.node, read)
