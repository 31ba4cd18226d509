"""choose_integers: products of numbers that were made of bytes are products of those bytes.

    sum of (a - p) s * (b - q) t  =  st (sum of a b  -  p sum of b  -  q sum of a  +  K p q)

a and b are i8 or u8 and their product is summed exactly in 32 bits, which a CPU with VNNI does at
four times the speed of f32, one with AVX2 at 1.1 to 1.3 times.  Sums of constants are folded
afterwards; everything behind the product runs on its finished tiles.  What a convolution reads
around an image is p, which stands for zero.

What is rounded to i8 on its way is rounded to u8 if that suits the machine better.

The largest of such numbers are chosen among their bytes.

Products of i32 give the same integers.  Products of f32 (between DequantizeLinear and
QuantizeLinear, say) are rounded once, after the sum, and not in every term.
"""

from __future__ import annotations

from graphc.codegen.gemm.packed import hardware_for
from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.ir.types import I8, U8, Type
from graphc.passes.normalise.rules import on_gpus_alone


def choose_integers(graph: Graph, config: Config) -> Graph:
    """The graph with products of bytes, on machines that multiply them fast."""
    if config.backend != "llvm" or on_gpus_alone(config) or not hardware_for(config).fast_bytes:
        return graph
    types = [n.type for n in (*graph.params, *graph.nodes)]
    if not any(isinstance(kind, Type) and kind.dtype in (I8, U8) for kind in types):
        return graph
    from graphc.passes.normalise.byte_products import byte_products  # few programs have bytes

    return byte_products(graph, floats=not (config.strict or config.parity))
