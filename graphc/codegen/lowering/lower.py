"""From a fused region to a loop kernel: choose the shape of the nest, then lower."""

from __future__ import annotations

from graphc.codegen.lowering.columns import Columns, OrderedColumns
from graphc.codegen.lowering.concat_boxes import Pieces, pieces_of
from graphc.codegen.lowering.custom_nest import Written
from graphc.codegen.lowering.in_place_update import Patch
from graphc.codegen.lowering.nest import Nest
from graphc.codegen.lowering.ordered import Ordered
from graphc.codegen.lowering.padding import Padding, pads_rows
from graphc.codegen.lowering.row_pairs import RowPairs, pairs_rows
from graphc.codegen.lowering.rows import Rows
from graphc.codegen.lowering.space import Space, space_of
from graphc.codegen.lowering.split_concat import Sections, count_of, sections_of
from graphc.codegen.lowering.split_reduction import Tall, is_tall
from graphc.codegen.lowering.tiles import Tiles, crossing_loop
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph
from graphc.ir.op import Reduction
from graphc.ir.sizes import Size, greatest, hint_of
from graphc.ir.types import Type, leaves
from graphc.loops.nest import Kernel


def lower_loops(
    region: Graph,
    name: str,
    *,
    strict: bool = False,
    check_finite: bool = False,
    parity: bool = False,
) -> tuple[Kernel, int]:
    """The loop kernel of a region and the grain (units worth a thread of their own)."""
    space = space_of(region)
    shape: type[Nest] = Ordered if parity else Rows
    cut = sections_of(region, space)
    if pads_rows(region):
        shape = Padding
    elif (pieces := pieces_of(region)) is not None and count_of(cut) <= len(pieces):
        shape = Pieces
    elif not (strict or parity) and pairs_rows(region, space):
        shape = RowPairs
    elif is_tall(region, space, strict or parity):
        shape = Tall
    elif folds_columns(region, space):
        shape = OrderedColumns if parity else Columns
    elif crossing_loop(region, space) is not None:
        shape = Tiles
    elif cut is not None:
        shape = Sections
    nest = shape(region, space, name, strict, check_finite)
    kernel = nest.lower()
    return kernel, grain_of(nest)


def grain_of(nest: Nest) -> int:
    """Units that pay for waking a thread, by what they move or compute, whichever takes longer;
    more of narrow elements are moved at a time."""
    flops = sum(n.op.estimate(n)[0] for n in nest.region.nodes)
    each = max(1, hint_of(nest.elements_per_unit))
    elements = max(each, flops / tuned.element_flops / max(hint_of(nest.units), 1))
    least = tuned.grain_bytes / widest(nest.region)
    if isinstance(nest.elements_per_unit, Size):  # as much work in units of another size
        most = int(least * each // elements)
        return greatest(1, most // greatest(1, nest.elements_per_unit))  # type: ignore[no-any-return]
    return max(1, int(least // elements))


def widest(region: Graph) -> int:
    """Bytes of an element of the operand or result that has the widest; of a part of complex ones,
    whose operations are counted by parts."""
    kinds = [kind for n in (*region.params, *region.results) for kind in leaves(n.type)]
    return max((kind.dtype.real.itemsize for kind in kinds if isinstance(kind, Type)), default=4)


def lower_patch(
    region: Graph, name: str, *, strict: bool = False, check_finite: bool = False
) -> tuple[Kernel, int]:
    """The same for an update of the memory that the region's result lies in."""
    nest = Patch(region, Space((), frozenset(), ()), name, strict, check_finite)
    return nest.lower(), grain_of(nest)


def lower_written(
    region: Graph, name: str, *, strict: bool = False, check_finite: bool = False
) -> tuple[Kernel, int]:
    """The same for a region around an op that writes its own loops."""
    nest = Written(region, Space((), frozenset(), ()), name, strict, check_finite)
    return nest.lower(), grain_of(nest)


def folds_columns(region: Graph, space: Space) -> bool:
    """The innermost loop is over a kept axis, and every fold can run on a block of them."""
    loops = space.loops
    reductions = [n for n in region.nodes if isinstance(n.op.lower, Reduction)]
    return (
        bool(reductions)
        and bool(loops)
        and not loops[-1].reduced
        and any(loop.reduced for loop in loops)
    )
