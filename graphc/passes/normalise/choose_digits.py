"""choose_digits: rows times a matrix of few bits are products of bytes where the machine has them.

    packed_matmul(%0, %1, %2)   ->   digits_matmul(byte_digits(%0), %1, %2)

Rows are written with three digits of base 256 (`graphc/ops/linalg/digits.py`), which hold as many
bits of the largest number of a row as f32 does, or with `precision="bf16"` with two.  The integers
of the matrix are multiplied as they are, four in an instruction, where products of f32 first widen
them one by one.
"""

from __future__ import annotations

from graphc.codegen.gemm.packed import hardware_for
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.op import OPS
from graphc.ir.place import parse_device
from graphc.ir.sizes import is_open
from graphc.ir.types import F32, Type
from graphc.ops.linalg.digits import LONGEST
from graphc.passes.normalise.narrow_products import is_exact
from graphc.passes.normalise.rules import by_op
from graphc.passes.reasons import explain


def choose_digits(graph: Graph, config: Config) -> Graph:
    """The graph with products of bytes, on machines that multiply u8 by i8 four at a time."""
    if config.backend != "llvm" or config.strict or config.parity:
        return graph
    if any(parse_device(name).type == "gpu" for name in config.devices):
        return graph  # where a product runs is not known yet, and GPUs have kernels of their own
    if not hardware_for(config).quads:
        return graph
    count = 2 if config.precision == "bf16" and config.error_budget is None else 3
    return by_op(graph, {"packed_matmul": (lambda node, r: digits(node, r, count),)})


def digits(node: Node, r: Rewriter, count: int) -> Node | None:
    """A product of f32 by so many digits, if sums of a group have room in 32 bits."""
    x, words, scales = node.inputs
    kind, held, counts = x.type, words.type, scales.type
    assert isinstance(kind, Type)
    assert isinstance(held, Type)
    assert isinstance(counts, Type)
    bits, groups = node.attrs["bits"], counts.dims[1]
    depth = held.dims[1] * (32 // bits)
    if kind.dtype is not F32 or node.after or depth // groups > LONGEST:
        return None
    if node.attrs["exponent"] or counts.dtype is not F32:
        return None  # floats, or scales that are powers of two
    if is_open(kind.dims[1:]) or kind.dims[1] != depth:
        return None
    count = 3 if is_exact(x) else count
    given = {"bits": bits, "groups": groups, "digits": count}
    explain(node.id, "rows are multiplied as digits of 8 bits")
    written = r.emit(OPS["byte_digits"], (x,), given)
    named = {"bits": bits, "columns": node.attrs["columns"], "digits": count}
    return r.emit(OPS["digits_matmul"], (written, words, scales), named)
