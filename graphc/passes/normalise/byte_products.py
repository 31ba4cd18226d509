"""Products of bytes for what `choose_integers` has found to be made of bytes."""

from __future__ import annotations

from math import prod

import numpy as np

from graphc.base.record import record
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.sizes import is_open
from graphc.ir.types import F32, I8, I32, U8, DType, Type
from graphc.passes.normalise.choose_convolution import (
    has_few_channels,
    over_windows,
    without_padding,
)
from graphc.passes.normalise.rules import by_op

BYTES = (I8, U8)
LONGEST = (1 << 31) // (255 * 255)  # terms that any bytes leave room for
LONGEST_IN_F32 = (1 << 24) // (255 * 255)
LONGEST_TAIL = 8
TAILS = frozenset(OPS[name] for name in ("add", "mul", "cast", "relu", "maximum", "minimum"))


@record(frozen=True)
class Affine:
    """An operand as (numbers - zero) * scale, of bytes; None is a zero of 0 and a scale of 1."""

    numbers: Node
    zero: Node | None = None
    scale: Node | None = None


def byte_products(graph: Graph, floats: bool) -> Graph:
    """The graph with products of bytes; those of `floats` are rounded once then."""
    products: set[Node] = set()

    def byte_product(node: Node, r: Rewriter) -> Node | None:
        if not is_product(node, floats):
            return None
        a, b = (affine(n, r) for n in node.inputs)
        if a is None or b is None or (a.numbers, b.numbers) == plain(node):
            return None
        if typed(node).dtype is F32 and not (has_byte_zero(a) and has_byte_zero(b)):
            return None
        if typed(b.numbers).dtype is I8:
            a = unsigned(a, r)
        made = rewritten(node, a, b, r)
        if made is not None:
            products.add(made)
        return made

    def step_of_result(node: Node, r: Rewriter) -> Node | None:
        return multiplied(node, products, r) if floats else None

    product = {"matmul": (byte_product,), "conv": (byte_product,)}
    return by_op(graph, {**product, "rint": (step_of_result,), "pool": (byte_pool,)})


def byte_pool(node: Node, r: Rewriter) -> Node | None:
    """The largest of bytes instead of the largest of what they stand for, a quarter of the size:
    larger bytes stand for larger numbers."""
    if node.attrs["kind"] != "max" or typed(node).dtype is not F32 or node.after:
        return None
    x = node.inputs[0]
    padded = x.op.traits.pads and not x.after and are_never_alone(x, node)
    found = scaled(x.inputs[0] if padded else x, r)
    if found is None or found.scale is None or not is_single(found.scale):
        return None
    scale = constant(found.scale)
    if scale is None or not 0 < scale.item() < np.inf:
        return None
    numbers, kind = found.numbers, typed(found.numbers).dtype
    if padded:
        edge = made_of(np.asarray(np.iinfo(kind.numpy).min), kind, r)
        numbers = r.emit(x.op, (numbers, edge), x.attrs)
    made = widened(r.emit(node.op, (numbers,), node.attrs), r)
    if found.zero is not None:
        made = r.emit(OPS["sub"], (made, found.zero))
    made = r.emit(OPS["mul"], (r.emit(OPS["cast"], (made,), {"dtype": F32}), found.scale))
    return made if made.type is node.type else None


def are_never_alone(pad: Node, pool: Node) -> bool:
    """Is what pads an image -inf, and in no window without an element of the image?"""
    around, attrs = constant(pad.inputs[1]), pad.attrs
    if around is None or not np.isneginf(around).all() or any(attrs["interior"]):
        return False
    low, high, extents = attrs["low"], attrs["high"], typed(pad.inputs[0]).dims
    if any((*low[:2], *high[:2])) or {*pool.attrs["dilation"]} != {1} or is_open(extents):
        return False
    steps = zip(pool.attrs["window"], pool.attrs["stride"], typed(pool).dims[2:], strict=True)
    return all(
        before < size and (count - 1) * step - before < extent
        for (size, step, count), before, extent in zip(steps, low[2:], extents[2:], strict=True)
    )


def is_product(node: Node, floats: bool) -> bool:
    """A product of i32, or of f32 and short enough for sums in i32."""
    kind, sources = typed(node), [n.type for n in node.inputs]
    if node.after or any(is_open(t.dims) for t in sources if isinstance(t, Type)):
        return False
    if kind.dtype is I32:
        return True
    return floats and kind.dtype is F32 and 0 < terms(node) <= LONGEST


def plain(node: Node) -> tuple[Node | None, Node | None]:
    """The bytes of a product of widened bytes."""
    return tuple(n.inputs[0] if n.op.traits.casts else None for n in node.inputs)  # type: ignore[return-value]


def terms(node: Node) -> int:
    """Of how many products a sum is made."""
    a, b = node.inputs
    return int(typed(a).dims[-1] if node.op.traits.matrix_product else prod(typed(b).dims[1:]))


def typed(node: Node) -> Type:
    assert isinstance(node.type, Type)
    return node.type


def multiplied(node: Node, products: set[Node], r: Rewriter) -> Node | None:
    """A product that is rounded to steps of another size: times what the step goes into 1.

    A division by a constant takes as long as all else that is done with a sum.
    """
    (steps,) = node.inputs
    if steps.op is not OPS["div"] or node.after or not is_of(steps.inputs[0], products):
        return None
    size = constant(steps.inputs[1])
    if size is None or size.size != 1 or typed(steps).dtype is not F32:
        return None
    with np.errstate(all="ignore"):
        factor = np.float32(1) / size
    if not np.isfinite(factor).all() or abs(float(factor.item())) < np.finfo(np.float32).tiny:
        return None
    scaled_up = r.emit(OPS["mul"], (steps.inputs[0], made_of(factor, F32, r)))
    return r.emit(node.op, (scaled_up,), node.attrs)


def is_of(node: Node, products: set[Node]) -> bool:
    """Is a value a product, or one with a bias or cut off at zero?"""
    for _ in range(LONGEST_TAIL):
        if node in products:
            return True
        if node.op not in TAILS:
            return False
        node = node.inputs[0]
    return False


# ------------------------------------------------------------------------------------ operands


def affine(node: Node, r: Rewriter) -> Affine | None:
    """What an operand is made of; None if that is no tensor of bytes."""
    found = scaled(node, r)
    if found is None or found.zero is None:
        return found
    numbers, zero = constant(found.numbers), constant(found.zero)
    if zero is not None and not zero.any():
        return Affine(found.numbers, None, found.scale)
    if numbers is None or zero is None:
        return found
    moved = as_bytes(numbers.astype(np.int64) - zero, r)
    return found if moved is None else Affine(moved, None, found.scale)


def scaled(node: Node, r: Rewriter, left: int = LONGEST_TAIL) -> Affine | None:
    """(numbers - zero) * scale, seen through views, at most so many nodes deep."""
    op = node.op
    if typed(node).dtype is I32 or not left:
        return shifted(node, r, left) if left else None
    if op.traits.casts:
        source = node.inputs[0]
        if typed(source).dtype in BYTES:
            return Affine(source)
        return shifted(source, r, left - 1) if typed(source).dtype is I32 else None
    if op is OPS["mul"]:
        for x, scale in (node.inputs, node.inputs[::-1]):
            alike = typed(x).dims == typed(node).dims and is_few(scale)
            found = scaled(x, r, left - 1) if alike else None
            if found is not None and found.scale is None:
                return Affine(found.numbers, found.zero, scale)
        return None
    return viewed(node, r, left)


def shifted(node: Node, r: Rewriter, left: int) -> Affine | None:
    """(numbers - zero), i32."""
    if node.op.traits.casts and typed(node.inputs[0]).dtype in BYTES:
        return Affine(node.inputs[0])
    value = constant(node)
    if value is not None:
        made = as_bytes(value, r)
        return None if made is None else Affine(made)
    if node.op is OPS["sub"] and left:
        x, zero = node.inputs
        alike = typed(x).dims == typed(node).dims and is_few(zero)
        found = shifted(x, r, left - 1) if alike else None
        if found is not None and found.zero is None:
            return Affine(found.numbers, zero)
        return None
    return viewed(node, r, left)


def viewed(node: Node, r: Rewriter, left: int) -> Affine | None:
    """A transpose or padding of such numbers; what is padded has one zero for all, and is padded
    with it."""
    traits = node.op.traits
    if not (traits.permutes or traits.pads) or not left:
        return None
    found = scaled(node.inputs[0], r, left - 1)
    if found is None:
        return None
    if traits.permutes:
        parts = (found.numbers, found.zero, found.scale)
        return Affine(*(transposed(p, node, r) if p is not None else None for p in parts))  # type: ignore[arg-type]
    edge = edge_of(found, r)
    around = constant(node.inputs[1])
    single = found.scale is None or is_single(found.scale)
    if edge is None or around is None or around.any() or not single:
        return None
    return Affine(r.emit(node.op, (found.numbers, edge), node.attrs), found.zero, found.scale)


def unsigned(found: Affine, r: Rewriter) -> Affine:
    """Numbers that are rounded to i8 as u8, 128 more, with a zero that is 128 more: the machine
    multiplies u8 by i8.  They wrap, so that bytes of NaN stay theirs."""
    source = found.numbers
    if typed(source).dtype is not I8:
        return found
    if source.op.traits.pads and not source.inputs[0].op.traits.pads:
        inner = unsigned(Affine(source.inputs[0], found.zero), r)
        edge = constant(source.inputs[1])
        if inner.numbers is source.inputs[0] or edge is None:
            return found
        edges = made_of(edge.astype(np.int32) + 128, U8, r)
        return Affine(
            r.emit(source.op, (inner.numbers, edges), source.attrs), inner.zero, found.scale
        )
    if not source.op.traits.casts or typed(source.inputs[0]).dtype is not F32:
        return found
    wrapped = r.emit(OPS["cast"], (source,), {"dtype": U8})
    numbers = r.emit(OPS["add"], (wrapped, made_of(np.asarray(128), U8, r)))
    more = made_of(np.asarray(128), I32, r)
    if found.zero is None:
        return Affine(numbers, more, found.scale)
    known = constant(found.zero)
    zero = r.emit(OPS["add"], (found.zero, more)) if known is None else made_of(known + 128, I32, r)
    return Affine(numbers, zero, found.scale)


def signed(found: Affine, r: Rewriter) -> Affine:
    """Constants of u8 that have a zero as i8, which what is multiplied with them takes as it is."""
    numbers, zero = constant(found.numbers), constant(found.zero) if found.zero else None
    if numbers is None or zero is None or typed(found.numbers).dtype is not U8:
        return found
    moved, less = (v.astype(np.int32) - 128 for v in (numbers, zero))
    return Affine(made_of(moved, I8, r), made_of(less, I32, r), found.scale)


def transposed(part: Node, view: Node, r: Rewriter) -> Node:
    """A part of an operand with its axes as in a transpose of it."""
    if is_single(part):
        return part
    rank = len(view.attrs["perm"])
    dims = typed(part).dims
    wide = r.emit(OPS["reshape"], (part,), {"dims": (1,) * (rank - len(dims)) + tuple(dims)})
    return r.emit(view.op, (wide,), view.attrs)


def edge_of(found: Affine, r: Rewriter) -> Node | None:
    """The byte that stands for zero, as a scalar; None if there is none."""
    dtype = typed(found.numbers).dtype
    if found.zero is None:
        return made_of(np.zeros((), dtype.numpy), dtype, r)
    if not is_single(found.zero) or not is_within(found.zero, dtype):
        return None
    value = constant(found.zero)
    if value is not None:
        return made_of(value.reshape(()), dtype, r)
    scalar = r.emit(OPS["reshape"], (found.zero,), {"dims": ()})
    return r.emit(OPS["cast"], (scalar,), {"dtype": dtype})


def has_byte_zero(found: Affine) -> bool:
    """Is the zero of numbers one of them? Sums of others could be more than i32 holds, where those
    of f32 are rounded."""
    return found.zero is None or is_within(found.zero, typed(found.numbers).dtype)


def is_within(zero: Node, dtype: DType) -> bool:
    """Is a zero point a number of the type that it is one of?"""
    while zero.op.traits.permutes or zero.op.traits.reshapes:
        zero = zero.inputs[0]
    value = constant(zero)
    if value is not None:
        info = np.iinfo(dtype.numpy)
        return bool(info.min <= value.min(initial=0) and value.max(initial=0) <= info.max)
    return zero.op.traits.casts and typed(zero.inputs[0]).dtype is dtype


def constant(node: Node, left: int = LONGEST_TAIL) -> np.ndarray | None:
    """The value of a constant, also one that is widened or reshaped on its way."""
    if node.op.traits.constant:
        array: np.ndarray = node.attrs["value"].array
        return array
    if not left or not (node.op.traits.casts or node.op.traits.reshapes):
        return None
    value = constant(node.inputs[0], left - 1)
    if value is None or (node.op.traits.casts and value.dtype.kind not in "iu"):
        return None
    return value.astype(typed(node).dtype.numpy).reshape(typed(node).dims)


def made_of(value: np.ndarray, dtype: DType, r: Rewriter) -> Node:
    return r.emit(OPS["const"], (), {"value": literal(value.astype(dtype.numpy), dtype)})


def as_bytes(value: np.ndarray, r: Rewriter) -> Node | None:
    """A constant of i8 or u8; None if these do not hold its numbers."""
    if not value.size:
        return None
    low, high = value.min(), value.max()
    dtype = I8 if low >= -128 and high <= 127 else U8
    if (low < 0 and dtype is U8) or high > 255:
        return None
    return made_of(value, dtype, r)


def is_single(node: Node) -> bool:
    return all(extent == 1 for extent in typed(node).dims)


def is_few(node: Node) -> bool:
    """One number, or one for each place on an axis."""
    return sum(extent != 1 for extent in typed(node).dims) <= 1


# ------------------------------------------------------------------------------------ products


def rewritten(node: Node, a: Affine, b: Affine, r: Rewriter) -> Node | None:
    """The product of bytes with what makes it the product of the operands."""
    made = whole(node, a, b, r) if node.op.traits.matrix_product else windows(node, a, b, r)
    if made is None or typed(node).dtype is I32:
        return made
    if typed(made).dtype is I32:
        made = r.emit(OPS["cast"], (made,), {"dtype": F32})
    scales = [s for s in (a.scale, along_channels(node, b.scale, r)) if s is not None]
    if len(scales) == 2 and any(map(is_single, scales)):
        scales = [r.emit(OPS["mul"], scales)]
    for scale in scales:
        made = r.emit(OPS["mul"], (made, scale))
    return made if typed(made).dims == typed(node).dims else None


def widened(source: Node, r: Rewriter) -> Node:
    return r.emit(OPS["cast"], (source,), {"dtype": I32})


def byte_sums(node: Node, a: Affine, b: Affine, r: Rewriter) -> Node:
    """The product of the bytes themselves."""
    return r.emit(node.op, (widened(a.numbers, r), widened(b.numbers, r)), node.attrs)


def total(source: Node, axes: tuple[int, ...], r: Rewriter) -> Node:
    """The sums of bytes along axes, which stay with an extent of 1."""
    axes = tuple(axis % len(typed(source).dims) for axis in axes)
    value = constant(source)
    if value is not None:
        return made_of(value.sum(axes, np.int32, keepdims=True), I32, r)
    return r.emit(OPS["sum"], (widened(source, r),), {"axes": axes, "keepdims": True})


def whole(node: Node, a: Affine, b: Affine, r: Rewriter) -> Node | None:
    """A product of matrices: zeros and scales may differ from row to row and column to column."""
    for part, axis in ((a.zero, -1), (a.scale, -1), (b.zero, -2), (b.scale, -2)):
        if part is not None and not is_single(part):
            dims = typed(part).dims
            if len(dims) >= -axis and dims[axis] != 1:
                return None
    made = byte_sums(node, a, b, r)
    terms_of = []
    if a.zero is not None:
        terms_of.append((OPS["sub"], a.zero, total(b.numbers, (-2,), r)))
    if b.zero is not None:
        terms_of.append((OPS["sub"], b.zero, total(a.numbers, (-1,), r)))
    if a.zero is not None and b.zero is not None:
        count = made_of(np.asarray(terms(node)), I32, r)
        terms_of.append((OPS["add"], a.zero, r.emit(OPS["mul"], (b.zero, count))))
    for op, first, second in terms_of:
        made = r.emit(op, (made, r.emit(OPS["mul"], (first, second))))
    return made


def windows(node: Node, a: Affine, b: Affine, r: Rewriter) -> Node | None:
    """A convolution: images have one zero and one scale, weights a zero and a scale for each
    channel.

    Windows of few channels are summed in f32, exactly.
    """
    if not all(is_single(p) for p in (a.zero, a.scale) if p is not None):
        return None
    if not all(is_by_output(p, node) for p in (b.zero, b.scale) if p is not None):
        return None
    made = of_few_channels(node, a, b, r)
    if made is not None:
        return made
    b = signed(b, r)
    made = byte_sums(node, a, b, r)
    sums = total(b.numbers, tuple(range(1, len(typed(node).dims))), r)
    if b.zero is not None:
        if node.attrs["groups"] > 1 or terms(node) > LONGEST:
            return None
        below = r.emit(OPS["mul"], (along(node, b.zero, r), window_sums(node, a.numbers, r)))
        made = r.emit(OPS["sub"], (made, below))
        all_zeros = r.emit(OPS["mul"], (b.zero, made_of(np.asarray(terms(node)), I32, r)))
        sums = r.emit(OPS["sub"], (sums, all_zeros))
    if a.zero is None:
        return made
    zero = r.emit(OPS["reshape"], (a.zero,), {"dims": ()})
    return r.emit(OPS["sub"], (made, r.emit(OPS["mul"], (zero, along(node, sums, r)))))


def is_by_output(part: Node, node: Node) -> bool:
    """One number, or one for each output channel of a convolution."""
    dims = typed(part).dims
    return is_single(part) or (len(dims) == len(typed(node).dims) and dims[0] != 1)


def window_sums(node: Node, numbers: Node, r: Rewriter) -> Node:
    """The sums of the bytes that each window of a convolution reads, exact in f32."""
    window = typed(node.inputs[1]).dims[2:]
    sums = total(numbers, (1,), r)
    if prod(window) == 1 and all(step == 1 for step in node.attrs["stride"]):
        return sums
    ones = made_of(np.ones((1, 1, *window)), F32, r)
    made = r.emit(node.op, (r.emit(OPS["cast"], (sums,), {"dtype": F32}), ones), node.attrs)
    return r.emit(OPS["cast"], (made,), {"dtype": I32})


def of_few_channels(node: Node, a: Affine, b: Affine, r: Rewriter) -> Node | None:
    """A convolution as loops over windows of bytes, where that is how to do it."""
    zero, below = (np.zeros((), np.int64) if z is None else constant(z) for z in (a.zero, b.zero))
    if zero is None or below is None or not (has_byte_zero(a) and has_byte_zero(b)):
        return None
    if terms(node) > LONGEST_IN_F32 or not has_few_channels(node):
        return None
    x, low = without_padding(a.numbers, int(zero.item()))
    known = constant(b.numbers)
    if known is None:
        wide = r.emit(OPS["cast"], (b.numbers,), {"dtype": F32})
        w = r.emit(OPS["sub"], (wide, made_of(below, F32, r))) if below.any() else wide
    else:
        w = made_of(known.astype(np.int64) - below, F32, r)
    made = over_windows(node, x, low, w, r, int(zero.item()))
    exact = typed(node).dtype is F32 or made is None
    return made if exact else r.emit(OPS["cast"], (made,), {"dtype": I32})  # type: ignore[arg-type]


def along_channels(node: Node, part: Node | None, r: Rewriter) -> Node | None:
    """What differs from output channel to output channel, as the result of a product has it."""
    return part if part is None or node.op.traits.matrix_product else along(node, part, r)


def along(node: Node, part: Node, r: Rewriter) -> Node:
    """One number for each output channel of a convolution, or for all."""
    if is_single(part):
        return r.emit(OPS["reshape"], (part,), {"dims": ()})
    dims = typed(part).dims
    return r.emit(OPS["reshape"], (part,), {"dims": (dims[0],) + (1,) * (len(dims) - 2)})
