"""The ops, by families: a module is imported when one of the names that it brings is asked for.

Every family is named here, once; which names it brings stands in `contents`, which is made from it.
"""

from __future__ import annotations

from typing import Any

from graphc.base.late_table import LateTable
from graphc.ir.op import OPS
from graphc.ops import contents
from graphc.ops.record import pickling  # noqa: F401  (says how ops are copied)
from graphc.ops.record.value import METHODS, NUMPY, PUBLIC

FAMILIES = (
    "autodiff.gradient_ops",
    "batching.vmap",
    "control.collectives",
    "control.comm",
    "control.transfer_casts",
    "control.control",
    "control.host_calls",
    "control.phased",
    "control.pipelined",
    "control.resource",
    "control.stacks",
    "control.state",
    "index.dynamic",
    "index.gather",
    "index.indexing",
    "index.scatter",
    "index.update",
    "linalg.decompositions",
    "linalg.digits",
    "linalg.einsum",
    "linalg.factor",
    "linalg.few_bits",
    "linalg.fourier",
    "linalg.fourier_convolution",
    "linalg.matrix_exponential",
    "linalg.packing",
    "linalg.polynomials",
    "linalg.products",
    "linalg.sparse",
    "linalg.spectral",
    "linalg.matmul",
    "math.activations",
    "math.bessel",
    "math.casts",
    "math.comparison",
    "math.elementwise",
    "math.logic",
    "math.polygamma",
    "math.powers",
    "math.rounding",
    "math.transcendental",
    "math.composed",
    "nn.attention",
    "nn.conv",
    "nn.conv_adjoint",
    "nn.conv_last",
    "nn.fused_attention",
    "nn.images",
    "nn.pooling",
    "nn.pooling_adjoint",
    "nn.pooling_tiles",
    "nn.softmax",
    "nn.spectra",
    "nn.winograd_ops",
    "nn.conv_windows",
    "nn.conv_windows_last",
    "nn.normalisation",
    "random.random",
    "record.structural",
    "reduce.counting",
    "reduce.cumulative",
    "reduce.quantiles",
    "reduce.recurrence",
    "reduce.reduce",
    "reduce.statistics",
    "shape.concat",
    "shape.creation",
    "shape.editing",
    "shape.padding",
    "shape.shape",
    "shape.slicing",
    "shape.manipulation",
    "sort.search",
    "sort.sorting",
)
TABLES: dict[str, LateTable[Any, Any]] = {
    "ops": OPS,
    "public": PUBLIC,
    "methods": METHODS,
    "numpy": NUMPY,
}

for title, table in TABLES.items():
    for family, names in getattr(contents, title.upper()).items():
        table.expect(dict.fromkeys(names.split(), f"graphc.ops.{family}"))
