"""The ops: importing this package fills the op table. Every family is named here, once."""

from __future__ import annotations

from graphc.ops.autodiff import (
    gradient_ops,  # noqa: F401
    loop_gradients,  # noqa: F401
    region_gradients,  # noqa: F401
)
from graphc.ops.batching import (
    device_regions,  # noqa: F401
    regions,  # noqa: F401
    vmap,  # noqa: F401
)
from graphc.ops.control import (
    collectives,  # noqa: F401
    comm,  # noqa: F401
    compression,  # noqa: F401
    control,  # noqa: F401
    custom,  # noqa: F401
    host_calls,  # noqa: F401
    pipelined,  # noqa: F401
    resource,  # noqa: F401
    stacks,  # noqa: F401
    state,  # noqa: F401
)
from graphc.ops.index import (
    dynamic,  # noqa: F401
    gather,  # noqa: F401
    indexing,  # noqa: F401
    scatter,  # noqa: F401
    update,  # noqa: F401
)
from graphc.ops.linalg import (
    decompositions,  # noqa: F401
    digits,  # noqa: F401
    einsum,  # noqa: F401
    factor,  # noqa: F401
    few_bits,  # noqa: F401
    fourier,  # noqa: F401
    matrix_exponential,  # noqa: F401
    packing,  # noqa: F401
    polynomials,  # noqa: F401
    products,  # noqa: F401
    sparse,  # noqa: F401
    spectral,  # noqa: F401
)
from graphc.ops.linalg import matmul as linalg  # noqa: F401
from graphc.ops.math import (
    activations,  # noqa: F401
    bessel,  # noqa: F401
    casts,  # noqa: F401
    comparison,  # noqa: F401
    elementwise,  # noqa: F401
    logic,  # noqa: F401
    polygamma,  # noqa: F401
    powers,  # noqa: F401
    rounding,  # noqa: F401
    transcendental,  # noqa: F401
)
from graphc.ops.math import composed as derived  # noqa: F401
from graphc.ops.nn import (
    attention,  # noqa: F401
    conv,  # noqa: F401
    conv_adjoint,  # noqa: F401
    fused_attention,  # noqa: F401
    images,  # noqa: F401
    pooling,  # noqa: F401
    pooling_adjoint,  # noqa: F401
    pooling_tiles,  # noqa: F401
    softmax,  # noqa: F401
    spectra,  # noqa: F401
    winograd_ops,  # noqa: F401
)
from graphc.ops.nn import conv_windows as windows  # noqa: F401
from graphc.ops.nn import normalisation as nn  # noqa: F401
from graphc.ops.random import random  # noqa: F401
from graphc.ops.record import (
    pickling,  # noqa: F401
    structural,  # noqa: F401
)
from graphc.ops.reduce import (
    counting,  # noqa: F401
    cumulative,  # noqa: F401
    quantiles,  # noqa: F401
    recurrence,  # noqa: F401
    reduce,  # noqa: F401
    statistics,  # noqa: F401
)
from graphc.ops.shape import (
    concat,  # noqa: F401
    creation,  # noqa: F401
    editing,  # noqa: F401
    padding,  # noqa: F401
    shape,  # noqa: F401
    slicing,  # noqa: F401
)
from graphc.ops.shape import manipulation as arrange  # noqa: F401
from graphc.ops.sort import (
    search,  # noqa: F401
    sorting,  # noqa: F401
)
