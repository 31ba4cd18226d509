"""graphc: a graph compiler for Python. NumPy-style model functions become native kernels.

Written by `python -m tools`."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from numpy.typing import ArrayLike, DTypeLike, NDArray

from graphc import cluster as cluster
from graphc import data as data
from graphc import linalg as linalg
from graphc import nn as nn
from graphc import numpy as numpy
from graphc import optim as optim
from graphc import parallel as parallel
from graphc import random as random
from graphc import sparse as sparse
from graphc import summary as summary
from graphc.errors import CheckpointError as CheckpointError
from graphc.errors import EndOfData as EndOfData
from graphc.errors import FeedError as FeedError
from graphc.errors import GraphError as GraphError
from graphc.errors import GraphHint as GraphHint
from graphc.errors import LimitError as LimitError
from graphc.errors import OutOfRangeError as OutOfRangeError
from graphc.errors import ParseError as ParseError
from graphc.errors import RunError as RunError
from graphc.errors import SizeError as SizeError
from graphc.errors import TraceError as TraceError
from graphc.errors import TypeRuleError as TypeRuleError
from graphc.errors import VerifyError as VerifyError
from graphc.formats.convert import convert as convert
from graphc.formats.torch.backend import torch_backend as torch_backend
from graphc.formats.torch.live import from_torch as from_torch
from graphc.formats.view import view as view
from graphc.frontend.compile.decorator import compile as compile
from graphc.frontend.compile.device_args import to_device as to_device
from graphc.frontend.compile.measure_devices import measure_links as measure_links
from graphc.frontend.compile.measure_devices import profile as profile
from graphc.frontend.diagnosis.bisect import bisect as bisect
from graphc.frontend.diagnosis.precision import precision_report as precision_report
from graphc.frontend.diagnosis.why import why as why
from graphc.frontend.files.gir_files import parse as parse
from graphc.frontend.files.gir_files import save as save
from graphc.frontend.files.gir_files import show as show
from graphc.frontend.files.loaded_graph import LoadedGraph as LoadedGraph
from graphc.frontend.session.session import Session as Session
from graphc.frontend.session.variable import Variable as Variable
from graphc.frontend.session.variable import container as container
from graphc.frontend.session.variable import reset_container as reset_container
from graphc.frontend.session.variable import variables as variables
from graphc.frontend.trace.placement import colocate as colocate
from graphc.frontend.trace.placement import device as device
from graphc.frontend.trace.spec import spec as spec
from graphc.frontend.trace.trace import name as name
from graphc.frontend.trace.tree import register_pytree as register_pytree
from graphc.frontend.transforms.control import cond as cond
from graphc.frontend.transforms.control import fori as fori
from graphc.frontend.transforms.control import map as map
from graphc.frontend.transforms.control import scan as scan
from graphc.frontend.transforms.control import switch as switch
from graphc.frontend.transforms.control import while_loop as while_loop
from graphc.frontend.transforms.grad import grad as grad
from graphc.frontend.transforms.grad import hessian as hessian
from graphc.frontend.transforms.grad import jacobian as jacobian
from graphc.frontend.transforms.grad import jvp as jvp
from graphc.frontend.transforms.grad import value_and_grad as value_and_grad
from graphc.frontend.transforms.grad import vjp as vjp
from graphc.frontend.transforms.gradients import gradient_report as gradient_report
from graphc.frontend.transforms.gradients import gradients as gradients
from graphc.frontend.transforms.host_calls import assert_ as assert_
from graphc.frontend.transforms.host_calls import callback as callback
from graphc.frontend.transforms.host_calls import print as print
from graphc.frontend.transforms.markers import checkpoint as checkpoint
from graphc.frontend.transforms.markers import custom_grad as custom_grad
from graphc.frontend.transforms.markers import stop_gradient as stop_gradient
from graphc.frontend.transforms.non_max_suppression import nms as nms
from graphc.frontend.transforms.vmap import all_gather as all_gather
from graphc.frontend.transforms.vmap import axis_index as axis_index
from graphc.frontend.transforms.vmap import pmax as pmax
from graphc.frontend.transforms.vmap import pmean as pmean
from graphc.frontend.transforms.vmap import pmin as pmin
from graphc.frontend.transforms.vmap import psum as psum
from graphc.frontend.transforms.vmap import vmap as vmap
from graphc.ir.graph import Graph as Graph
from graphc.ir.graph import Program as Program
from graphc.learn.callbacks import CSVLogger as CSVLogger
from graphc.learn.callbacks import Callback as Callback
from graphc.learn.callbacks import EarlyStopping as EarlyStopping
from graphc.learn.callbacks import History as History
from graphc.learn.callbacks import JSONLogger as JSONLogger
from graphc.learn.callbacks import LearningRateLogger as LearningRateLogger
from graphc.learn.callbacks import LossCurve as LossCurve
from graphc.learn.callbacks import SaveBest as SaveBest
from graphc.learn.callbacks import TensorBoard as TensorBoard
from graphc.learn.checkpoints import Checkpoints as Checkpoints
from graphc.learn.checkpoints import load_checkpoint as load_checkpoint
from graphc.learn.checkpoints import save_checkpoint as save_checkpoint
from graphc.learn.inputs import Queue as Queue
from graphc.learn.inputs import Reader as Reader
from graphc.learn.model import Model as Model
from graphc.learn.quantize import fake_quantize as fake_quantize
from graphc.learn.quantize import quantize as quantize
from graphc.ops.control.custom import custom_op as custom_op
from graphc.runtime.call.array import Array as Array
from graphc.runtime.files.gcx_function import Loaded as Loaded

__version__: str

def load(path: str | PathLike[str], **options: Any) -> Loaded:
    """A saved graph (.gir), a compiled one (.gcx), an ONNX model (.onnx), a program of PyTorch
    (.pt2) or a model of Keras 3 (.keras) as a callable.

    It takes NumPy arrays, in order or by the file's names, or the nestings of them that the saved
    function took (dicts, lists, tuples), and returns arrays.  A .gcx file runs
    without any part of the compiler being imported; its options are `threads`, `share` and
    `require_signature`.  Variables of a file live in containers of their own, unless it shares this
    program's.  What a model of others was compiled to is kept in the cache: the next
    process runs it without reading the file again.  Raises GraphError for a file that is missing,
    damaged, of another format or, where that is asked for, not signed; ParseError for text that is
    no graph.
    """

def abs(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise absolute; operands broadcast and promote as in NumPy 2."""

def absolute(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise absolute; operands broadcast and promote as in NumPy 2."""

def acos(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arccos; operands broadcast and promote as in NumPy 2."""

def acosh(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arccosh; operands broadcast and promote as in NumPy 2."""

def add(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise add; operands broadcast and promote as in NumPy 2."""

def affine_grid(
    theta: ArrayLike,
    sizes: Sequence[int],
    align_corners: bool = False,
) -> NDArray[Any]:
    """Positions [N, *sizes, k] in -1..1 that affine maps theta[N, k, k + 1] send a grid to.

    The last axis of a position is x first, as `grid_sample` takes it.
    """

def all(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """Whether all element along `axis` is not zero."""

def allclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> NDArray[Any]:
    """Whether all elements are close (see `isclose`); a 0-d bool."""

def angle(z: ArrayLike, deg: bool = False) -> NDArray[Any]:
    """The angle of a complex number in (-pi, pi], or in degrees; 0 or pi for a real one."""

def any(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """Whether any element along `axis` is not zero."""

def append(x: ArrayLike, values: ArrayLike, axis: int | None = None) -> NDArray[Any]:
    """values after x along an axis (None: both flattened)."""

def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike = 1,
    dtype: DTypeLike | None = None,
    **options: Any,
) -> NDArray[Any]:
    """np.arange; bounds may be symbolic dimensions, and the end a traced integer."""

def arccos(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arccos; operands broadcast and promote as in NumPy 2."""

def arccosh(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arccosh; operands broadcast and promote as in NumPy 2."""

def arcsin(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arcsin; operands broadcast and promote as in NumPy 2."""

def arcsinh(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arcsinh; operands broadcast and promote as in NumPy 2."""

def arctan(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arctan; operands broadcast and promote as in NumPy 2."""

def arctan2(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arctan2; operands broadcast and promote as in NumPy 2."""

def arctanh(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arctanh; operands broadcast and promote as in NumPy 2."""

def argmax(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: NDArray[Any] | None = None,
    *,
    keepdims: bool = False,
) -> NDArray[Any]:
    """The index (i64) of the max along `axis`, or in the flattened array. The first of equal elements is taken; a NaN wins.
    """

def argmin(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: NDArray[Any] | None = None,
    *,
    keepdims: bool = False,
) -> NDArray[Any]:
    """The index (i64) of the min along `axis`, or in the flattened array. The first of equal elements is taken; a NaN wins.
    """

def argpartition(
    x: ArrayLike,
    kth: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: str | None = None,
) -> NDArray[Any]:
    """The positions that sort x along an axis, which is one answer np.argpartition may give."""

def argsort(
    x: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = None,
) -> NDArray[Any]:
    """The positions that sort x along an axis; always stable. Complex numbers are ordered by their
    real parts, then by their imaginary parts; those with a NaN come last, as NumPy has them.
    """

def argwhere(x: ArrayLike, size: int | None = None, fill_value: int = 0) -> NDArray[Any]:
    """nonzero as the rows of a matrix."""

def around(x: ArrayLike, decimals: int = 0) -> NDArray[Any]:
    """x rounded to `decimals` digits after the point, halves to even (as NumPy: by scaling).

    Raises TypeRuleError for more than 308 decimals.
    """

def array_equal(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """Whether two arrays have one shape and equal elements; a 0-d bool."""

def array_split(x: ArrayLike, indices_or_sections: ArrayLike, axis: int = 0) -> list[NDArray[Any]]:
    """Like split; the first sections are one longer where the extent does not divide."""

def asin(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arcsin; operands broadcast and promote as in NumPy 2."""

def asinh(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arcsinh; operands broadcast and promote as in NumPy 2."""

def astype(
    x: ArrayLike,
    dtype: DTypeLike | None,
    order: str = 'K',
    casting: str = 'unsafe',
    subok: bool = True,
    copy: bool = True,
    **options: Any,
) -> NDArray[Any]:
    """x with another element type (see the op `cast`); imaginary parts that are lost are warned of.
    Raises TypeRuleError where `casting` does not allow it.
    """

def atan(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arctan; operands broadcast and promote as in NumPy 2."""

def atan2(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arctan2; operands broadcast and promote as in NumPy 2."""

def atanh(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise arctanh; operands broadcast and promote as in NumPy 2."""

def atleast_1d(*arrays: ArrayLike) -> Any:
    """Every array with at least one axis."""

def atleast_2d(*arrays: ArrayLike) -> Any:
    """Every array with at least two axes."""

def atleast_3d(*arrays: ArrayLike) -> Any:
    """Every array with at least three axes."""

def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> NDArray[Any]:
    """softmax(q k^T scale + mask) v for q, k, v of shape [..., heads, length, width].

    mask     bool (True may be seen) or a float that is added; broadcasts to the scores,
             [..., heads, queries, keys]
    causal   query i sees keys up to i (the last query sees the last key)
    scale    1 / sqrt(width) by default
    Query heads may be a multiple of the key and value heads, which are then shared.
    """

def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> NDArray[Any]:
    """The mean, or the weighted mean, 1-D weights along `axis`; if `returned` with the sum of the
    weights.
    """

def avg_pool(
    x: ArrayLike,
    window: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] | str | Sequence[tuple[int, int]] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> NDArray[Any]:
    """The mean over windows of x[N, C, *spatial].

    Padding counts as zeros, or not at all without `count_include_pad`; what ceil_mode adds beyond
    the padding asked for never counts.
    """

def batch_norm(
    x: ArrayLike,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: int = 1,
    epsilon: float = 1e-05,
) -> NDArray[Any]:
    """Normalise every channel (`axis`) with given statistics or, without any, with the batch's own.

    mean, variance, weight and bias have one element per channel.
    """

def binary_cross_entropy(p: ArrayLike, y: ArrayLike, reduction: str = 'mean') -> NDArray[Any]:
    """-(y log p + (1 - y) log(1 - p)); logarithms are held above -100, as in PyTorch."""

def binary_cross_entropy_with_logits(
    x: ArrayLike,
    y: ArrayLike,
    reduction: str = 'mean',
) -> NDArray[Any]:
    """binary_cross_entropy(sigmoid(x), y) = softplus(x) - x y, without overflow."""

def bincount(
    x: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int = 0,
    length: int | None = None,
) -> NDArray[Any]:
    """How often each of 0..length-1 occurs in x, or the sum of its weights; others are ignored.

    Of a traced array `minlength` stands for the length, if there is one, and a value that does not
    fit raises RunError when it runs.
    """

def bitwise_and(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise bitwise_and; operands broadcast and promote as in NumPy 2."""

def bitwise_count(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """How many bits of |x| are set, as u8."""

def bitwise_invert(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise bitwise_not; operands broadcast and promote as in NumPy 2."""

def bitwise_left_shift(
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    dtype: DTypeLike | None = None,
) -> NDArray[Any]:
    """Element-wise left_shift; operands broadcast and promote as in NumPy 2."""

def bitwise_not(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise bitwise_not; operands broadcast and promote as in NumPy 2."""

def bitwise_or(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise bitwise_or; operands broadcast and promote as in NumPy 2."""

def bitwise_right_shift(
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    dtype: DTypeLike | None = None,
) -> NDArray[Any]:
    """Element-wise right_shift; operands broadcast and promote as in NumPy 2."""

def bitwise_xor(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise bitwise_xor; operands broadcast and promote as in NumPy 2."""

def block(arrays: Sequence[ArrayLike]) -> NDArray[Any]:
    """Nested lists of arrays put together: the innermost along the last axis, and so outwards."""

def broadcast_arrays(*arrays: ArrayLike, subok: bool = False) -> tuple[NDArray[Any], ...]:
    """All arrays repeated to their common shape."""

def broadcast_to(x: ArrayLike, shape: int | Sequence[int], subok: bool = False) -> NDArray[Any]:
    """x repeated to a shape that it broadcasts to."""

def cbrt(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise cbrt; operands broadcast and promote as in NumPy 2."""

def ceil(x: ArrayLike) -> NDArray[Any]:
    """ceil of floats; integers and bools are returned as they are."""

def celu(x: ArrayLike, /, alpha: float = 1.0, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise celu; operands broadcast and promote as in NumPy 2."""

def choose(a: ArrayLike, choices: Sequence[ArrayLike], mode: str = 'raise') -> NDArray[Any]:
    """From a list of arrays the element of the one that a names, position by position."""

def clip(
    x: ArrayLike,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
    *,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
) -> NDArray[Any]:
    """x limited to [a_min, a_max]; either bound may be None. NaN stays NaN."""

def column_stack(arrays: Sequence[ArrayLike]) -> NDArray[Any]:
    """Vectors as the columns of a matrix; matrices as they are."""

def complex(re: ArrayLike, im: ArrayLike) -> NDArray[Any]:
    """The complex number with these parts (f32 gives c64, f64 gives c128)."""

def compress(condition: ArrayLike, x: ArrayLike, axis: int | None = None) -> NDArray[Any]:
    """Sub-arrays along an axis where a condition is true."""

def concat(
    arrays: Sequence[ArrayLike],
    axis: int | None = 0,
    dtype: DTypeLike | None = None,
    casting: str = 'same_kind',
) -> NDArray[Any]:
    """Arrays joined along an axis (None: flattened first), promoted to their common dtype."""

def concatenate(
    arrays: Sequence[ArrayLike],
    axis: int | None = 0,
    dtype: DTypeLike | None = None,
    casting: str = 'same_kind',
) -> NDArray[Any]:
    """Arrays joined along an axis (None: flattened first), promoted to their common dtype."""

def conj(x: ArrayLike) -> NDArray[Any]:
    """The complex conjugate; a real array itself."""

def conjugate(x: ArrayLike) -> NDArray[Any]:
    """The complex conjugate; a real array itself."""

def conv(
    x: ArrayLike,
    w: ArrayLike,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str | Sequence[tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> NDArray[Any]:
    """Convolution of x[N, C, *spatial] with w[O, C / groups, *window] over 1 to 3 spatial axes.

    padding is an int, one int or (low, high) pair per axis, "same" or "valid"; x is padded with 0.
    """

def conv_transpose(
    x: ArrayLike,
    w: ArrayLike,
    stride: int | Sequence[int] | None = 1,
    padding: int | Sequence[int] | str | Sequence[tuple[int, int]] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> NDArray[Any]:
    """The adjoint of conv with respect to x: w is (channels in, channels out / groups, *window).

    Spatial extents become (extent - 1) * stride - 2 * padding + reach + output_padding.
    """

def convolve(a: ArrayLike, v: ArrayLike, mode: str = 'full') -> NDArray[Any]:
    """The convolution of two vectors, term by term (`fftconvolve` is faster for long ones)."""

def copysign(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise copysign; operands broadcast and promote as in NumPy 2."""

def corrcoef(
    x: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    *,
    dtype: DTypeLike | None = None,
) -> NDArray[Any]:
    """The matrix of correlation coefficients."""

def correlate(a: ArrayLike, v: ArrayLike, mode: str = 'valid') -> NDArray[Any]:
    """The cross-correlation of two vectors; v is conjugated."""

def cos(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise cos; operands broadcast and promote as in NumPy 2."""

def cosh(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise cosh; operands broadcast and promote as in NumPy 2."""

def count_nonzero(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
) -> NDArray[Any]:
    """How many elements are not zero, as i64."""

def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> NDArray[Any]:
    """The covariance matrix of variables in rows (or columns if not `rowvar`).

    fweights says how often each observation counts, aweights how much.
    """

def cross(
    a: ArrayLike,
    b: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> NDArray[Any]:
    """Vector products of 3-vectors along an axis; the other axes broadcast."""

def cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    axis: int = -1,
    label_smoothing: float = 0.0,
    reduction: str = 'mean',
    ignore_index: int | None = None,
) -> NDArray[Any]:
    """Cross entropy of logits with integer labels or with probabilities of the logits' shape.

    Labels are 0 ... classes - 1.  Rows whose label is `ignore_index` (-100, say) have no loss and
    do not count in the mean, which is NaN where no row is left.  Raises OutOfRangeError, which is
    an IndexError, for any other label, where the loss or its gradient is computed.
    """

def cummax(x: ArrayLike, axis: int = 0, *, reverse: bool = False) -> NDArray[Any]:
    """The largest element so far along an axis; a NaN stays (`np.maximum.accumulate`)."""

def cummin(x: ArrayLike, axis: int = 0, *, reverse: bool = False) -> NDArray[Any]:
    """The smallest element so far along an axis; a NaN stays (`np.minimum.accumulate`)."""

def cumprod(
    a: ArrayLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: NDArray[Any] | None = None,
    *,
    reverse: bool = False,
) -> NDArray[Any]:
    """Running prod along `axis` (None: of the flattened array)."""

def cumsum(
    a: ArrayLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: NDArray[Any] | None = None,
    *,
    reverse: bool = False,
) -> NDArray[Any]:
    """Running sum along `axis` (None: of the flattened array)."""

def cumulative_prod(
    x: ArrayLike,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> NDArray[Any]:
    """cumulative_prod of the array-API standard; `include_initial` puts 1 first."""

def cumulative_sum(
    x: ArrayLike,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> NDArray[Any]:
    """cumulative_sum of the array-API standard; `include_initial` puts 0 first."""

def deg2rad(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise radians; operands broadcast and promote as in NumPy 2."""

def degrees(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise degrees; operands broadcast and promote as in NumPy 2."""

def delete(x: ArrayLike, obj: ArrayLike, axis: int | None = None) -> NDArray[Any]:
    """x without the sub-arrays at positions or where a mask is true."""

def depth_to_space(x: ArrayLike, block: int, depth_first: bool = True) -> NDArray[Any]:
    """Blocks of channels of x[N, C, H, W] become blocks of the image: [N, C / b², H b, W b].

    depth_first: the block is the outer part of the channels, else the inner one (pixel shuffle).
    """

def dft(
    real: ArrayLike,
    imag: ArrayLike | None = None,
    axis: int = -1,
    length: int | None = None,
    inverse: bool = False,
    kept: int | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The discrete Fourier transform along an axis: (real, imaginary), `kept` frequencies of them.

    The axis is cut or filled up with zeros to `length`.
    """

def diag(v: ArrayLike, k: int = 0) -> NDArray[Any]:
    """The matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix."""

def diagflat(v: ArrayLike, k: int = 0) -> NDArray[Any]:
    """The matrix with the elements of v on its k-th diagonal."""

def diagonal(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> NDArray[Any]:
    """A diagonal over two axes, as the last axis of the result."""

def diff(
    a: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> NDArray[Any]:
    """a[1:] - a[:-1] along an axis, n times; of bools it is `not_equal`."""

def digamma(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """The derivative of lgamma."""

def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False) -> NDArray[Any]:
    """The number of the bin that each value falls into; traced bins are taken to increase."""

def divide(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise divide; operands broadcast and promote as in NumPy 2."""

def divmod(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """(floor_divide(x, y), remainder(x, y))."""

def dot(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """Sum over the last axis of a and the second to last of b; a product for scalars."""

def dsplit(x: ArrayLike, indices_or_sections: ArrayLike) -> NDArray[Any]:
    """split along axis 2."""

def dstack(arrays: Sequence[ArrayLike]) -> NDArray[Any]:
    """Arrays joined along axis 2."""

def dynamic_slice(
    x: ArrayLike,
    starts: ArrayLike | Sequence[ArrayLike],
    sizes: int | Sequence[int],
) -> NDArray[Any]:
    """x[s0:s0+n0, ...] with traced starts (a vector or a sequence of scalars) and fixed sizes.

    A block that sticks out is moved inside x.
    """

def dynamic_update_slice(
    x: ArrayLike,
    updates: ArrayLike,
    starts: ArrayLike | Sequence[ArrayLike],
) -> NDArray[Any]:
    """x with the block at traced starts replaced; a block that sticks out is moved inside x."""

def ediff1d(
    x: ArrayLike,
    to_end: ArrayLike | None = None,
    to_begin: ArrayLike | None = None,
) -> NDArray[Any]:
    """The differences of the flattened array, between what is put before and behind them."""

def einsum(*operands: Any, optimize: Any = True, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """np.einsum: sums of products named by letters, in subscript or interleaved form."""

def elu(x: ArrayLike, /, alpha: float = 1.0, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise elu; operands broadcast and promote as in NumPy 2."""

def empty(
    shape: int | Sequence[int],
    dtype: DTypeLike | None = None,
    order: str = 'C',
    **options: Any,
) -> NDArray[Any]:
    """Zeros: graphc has no undefined contents."""

def empty_like(
    x: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = 'K',
    subok: bool = True,
    shape: int | Sequence[int] | None = None,
    **options: Any,
) -> NDArray[Any]:
    """Zeros in the shape and dtype of x: graphc has no undefined contents."""

def equal(x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
    """Element-wise equal, as bool."""

def erf(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """The error function."""

def erfc(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """1 - erf(x), without cancellation."""

def erfinv(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """The inverse of erf on (-1, 1)."""

def exact(x: ArrayLike) -> NDArray[Any]:
    """x itself, except that `compress` never shortens its transfers, nor those of its gradient, and
    products read it in full whatever the `precision`.
    """

def exp(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise exp; operands broadcast and promote as in NumPy 2."""

def exp2(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise exp2; operands broadcast and promote as in NumPy 2."""

def expand_dims(x: ArrayLike, axis: int | Sequence[int] | None) -> NDArray[Any]:
    """x with new axes of extent 1 at the given positions of the result."""

def expit(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """1 / (1 + exp(-x))."""

def expm1(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise expm1; operands broadcast and promote as in NumPy 2."""

def eye(
    n: ArrayLike,
    m: ArrayLike | None = None,
    k: ArrayLike = 0,
    dtype: DTypeLike | None = None,
    **options: Any,
) -> NDArray[Any]:
    """Ones on the k-th diagonal, zeros elsewhere; f64 by default."""

def fabs(x: ArrayLike) -> NDArray[Any]:
    """The absolute value of a real array as a float."""

def fftconvolve(
    x: ArrayLike,
    y: ArrayLike,
    mode: str = 'full',
    axes: int | Sequence[int] | None = None,
) -> NDArray[Any]:
    """The convolution of x and y along axes, all by default, by fast Fourier transforms.

    Arrays have one rank; along other axes they have one size, or 1.  `mode` is "full"; "same", the
    middle of that, of the size of x; or "valid", where the smaller one lies within the larger one.
    Integers become f64.  Errors are relative to the largest sums, not to each: where x and y are of
    like size everywhere they are as small as those of `convolve`; an infinity or NaN makes all NaN.
    Raises GraphError for other modes, arrays that do not meet, open sizes and axes of no elements.
    """

def fill_diagonal(x: ArrayLike, value: ArrayLike, wrap: bool = False) -> None:
    """Set the main diagonal of a traced array."""

def fix(x: ArrayLike) -> NDArray[Any]:
    """trunc of floats; integers and bools are returned as they are."""

def flatnonzero(x: ArrayLike, size: int | None = None, fill_value: int = 0) -> NDArray[Any]:
    """Row-major positions of what is not zero: all, or the first `size`, then fill_value."""

def flatten(x: ArrayLike, order: str = 'C') -> NDArray[Any]:
    """The elements as one row."""

def flip(x: ArrayLike, axis: int | Sequence[int] | None = None) -> NDArray[Any]:
    """x backwards along the given axes (all by default)."""

def fliplr(x: ArrayLike) -> NDArray[Any]:
    """x backwards along axis 1."""

def flipud(x: ArrayLike) -> NDArray[Any]:
    """x backwards along axis 0."""

def float_power(x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
    """x ** y in f64 or c128."""

def floor(x: ArrayLike) -> NDArray[Any]:
    """floor of floats; integers and bools are returned as they are."""

def floor_divide(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise floor_divide; operands broadcast and promote as in NumPy 2."""

def fmax(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise fmax; operands broadcast and promote as in NumPy 2."""

def fmin(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise fmin; operands broadcast and promote as in NumPy 2."""

def fmod(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise fmod; operands broadcast and promote as in NumPy 2."""

def frexp(x: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """(m, e) with x = m * 2**e and 0.5 <= abs(m) < 1; 0, inf and NaN are their own m, e is 0."""

def full(
    shape: int | Sequence[int],
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = 'C',
    **options: Any,
) -> NDArray[Any]:
    """An array of one value, which may be traced and broadcasts to the shape."""

def full_like(
    x: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = 'K',
    subok: bool = True,
    shape: int | Sequence[int] | None = None,
    **options: Any,
) -> NDArray[Any]:
    """One value in the shape and dtype of x."""

def gcd(x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
    """The greatest common divisor of integers, by Euclid's algorithm."""

def gelu(x: ArrayLike, /, tanh: bool = False, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise gelu; operands broadcast and promote as in NumPy 2."""

def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> NDArray[Any]:
    """`num` values from start to stop, each the same multiple of the one before; neither is 0.

    On the way from one real number to another none changes its sign.
    """

def getitem(x: ArrayLike, index: Any, mode: str = 'raise') -> NDArray[Any]:
    """x[index] with NumPy's meaning; out-of-range ints and constant arrays raise at once."""

def glu(x: ArrayLike, axis: int = -1) -> NDArray[Any]:
    """a * sigmoid(b) with a and b the two halves of x along `axis`."""

def gradient(
    x: ArrayLike,
    *spacing: ArrayLike,
    axis: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> Any:
    """Central differences, one-sided at both ends: of two elements, or of three (`edge_order` 2).

    The spacing of each axis is a number, or a vector of places.
    """

def greater(x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
    """Element-wise greater, as bool."""

def greater_equal(x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
    """Element-wise greater_equal, as bool."""

def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    mode: str = 'linear',
    padding: str = 'zeros',
    align_corners: bool = False,
) -> NDArray[Any]:
    """x[N, C, *spatial] read at positions grid[N, *places, k] in -1..1, x first.

    mode is "nearest", "linear" or "cubic"; padding is "zeros", "border" or "reflection".
    """

def group_norm(
    x: ArrayLike,
    groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: int = 1,
    epsilon: float = 1e-05,
) -> NDArray[Any]:
    """Layer norm over groups of neighbouring channels (`axis`) and everything behind the batch.

    Raises TypeRuleError unless the number of channels is a multiple of `groups`.
    """

def hard_sigmoid(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise hard_sigmoid; operands broadcast and promote as in NumPy 2."""

def hard_silu(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise hard_swish; operands broadcast and promote as in NumPy 2."""

def hard_swish(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise hard_swish; operands broadcast and promote as in NumPy 2."""

def heaviside(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise heaviside; operands broadcast and promote as in NumPy 2."""

def histogram(
    x: ArrayLike,
    bins: ArrayLike = 10,
    range: ArrayLike | None = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(counts, edges); the last bin includes its right edge."""

def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: ArrayLike = 10,
    range: ArrayLike | None = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(counts as f64, the edges of x, the edges of y)."""

def histogram_bin_edges(
    x: ArrayLike,
    bins: ArrayLike = 10,
    range: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> NDArray[Any]:
    """The edges of equal bins between the extremes of x or over a range; or the edges given."""

def histogramdd(
    sample: ArrayLike,
    bins: ArrayLike = 10,
    range: ArrayLike | None = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[NDArray[Any], tuple[NDArray[Any], ...]]:
    """(counts as f64, the edges of each variable) of rows of variables, or of a list of variables.

    bins is a number, or a number or edges for each variable; range has a pair or None for each.
    """

def hsplit(x: ArrayLike, indices_or_sections: ArrayLike) -> NDArray[Any]:
    """split along axis 1 (axis 0 for vectors)."""

def hstack(
    arrays: Sequence[ArrayLike],
    dtype: DTypeLike | None = None,
    casting: str = 'same_kind',
) -> NDArray[Any]:
    """Arrays joined along axis 1 (axis 0 for vectors)."""

def huber(x: ArrayLike, y: ArrayLike, delta: float = 1.0, reduction: str = 'mean') -> NDArray[Any]:
    """(x - y)**2 / 2 up to delta, linear beyond."""

def hypot(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise hypot; operands broadcast and promote as in NumPy 2."""

def i0(x: ArrayLike) -> NDArray[Any]:
    """The modified Bessel function of the first kind of order 0, of real numbers."""

def identity(n: ArrayLike, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """The unit matrix."""

def imag(x: ArrayLike) -> NDArray[Any]:
    """The imaginary part; zeros for a real array."""

def index_update(x: ArrayLike, index: Any, value: ArrayLike, mode: str = 'set') -> NDArray[Any]:
    """A copy of x in which x[index] is set, added to ("add"), multiplied ("mul") or bounded by
    ("min", "max") a value that broadcasts to it. Of equal positions the last one wins, sums add up.
    """

def inner(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """Sum over the last axes of both; a product where one is a scalar."""

def insert(
    x: ArrayLike,
    obj: ArrayLike,
    values: ArrayLike,
    axis: int | None = None,
) -> NDArray[Any]:
    """x with values put before positions known while tracing."""

def instance_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: int = 1,
    epsilon: float = 1e-05,
) -> NDArray[Any]:
    """Group norm with one channel per group."""

def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: ArrayLike | None = None,
) -> NDArray[Any]:
    """Values of the piecewise linear function through increasing points (xp, fp)."""

def interpolate(
    x: ArrayLike,
    sizes: Sequence[int],
    mode: str = 'linear',
    align_corners: bool = False,
    antialias: bool = False,
) -> NDArray[Any]:
    """The trailing axes of x resampled to these sizes; pixels are areas unless corners align.

    mode is "nearest", "linear" (bilinear, trilinear ...) or "cubic" (a = -0.75).
    """

def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> NDArray[Any]:
    """The elements in both, in ascending order and each once: all, or the first `size`; with
    `return_indices` also where they are first in each.
    """

def invert(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise bitwise_not; operands broadcast and promote as in NumPy 2."""

def isclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> NDArray[Any]:
    """|a - b| <= atol + rtol |b| for finite b, or equal; `equal_nan` counts two NaNs as equal."""

def iscomplex(x: ArrayLike) -> NDArray[Any]:
    """True where the imaginary part is not 0."""

def iscomplexobj(x: ArrayLike) -> bool:
    """Whether the dtype is complex: known while tracing."""

def isfinite(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise isfinite; operands broadcast and promote as in NumPy 2."""

def isin(
    x: ArrayLike,
    test: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
) -> NDArray[Any]:
    """Whether each element of x is among the elements of test."""

def isinf(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise isinf; operands broadcast and promote as in NumPy 2."""

def isnan(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise isnan; operands broadcast and promote as in NumPy 2."""

def isneginf(x: ArrayLike) -> NDArray[Any]:
    """True where x is -inf."""

def isposinf(x: ArrayLike) -> NDArray[Any]:
    """True where x is +inf."""

def isreal(x: ArrayLike) -> NDArray[Any]:
    """True where the imaginary part is 0."""

def isrealobj(x: ArrayLike) -> bool:
    """Whether the dtype is not complex: known while tracing."""

def ix_(*arrays: ArrayLike) -> tuple[NDArray[Any], ...]:
    """Vectors as an open mesh, one axis each: x[np.ix_(rows, columns)]. Of masks, which must be
    known while tracing, the positions.
    """

def kl_divergence(log_p: ArrayLike, target: ArrayLike, axis: int = -1) -> NDArray[Any]:
    """sum(target (log target - log_p)) along an axis; a target of 0 adds nothing."""

def kron(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """Every element of a times all of b, laid out as blocks."""

def layer_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: int | Sequence[int] | None = -1,
    epsilon: float = 1e-05,
) -> NDArray[Any]:
    """(x - mean) / sqrt(var + epsilon) over `axis`, times weight, plus bias."""

def lcm(x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
    """The least common multiple of integers; 0 where one of them is 0."""

def ldexp(x: ArrayLike, exponent: ArrayLike) -> NDArray[Any]:
    """x * 2**exponent, scaled in two steps so that neither overflows early."""

def leaky_relu(
    x: ArrayLike,
    /,
    slope: float = 0.01,
    *,
    dtype: DTypeLike | None = None,
) -> NDArray[Any]:
    """Element-wise leaky_relu; operands broadcast and promote as in NumPy 2."""

def left_shift(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise left_shift; operands broadcast and promote as in NumPy 2."""

def less(x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
    """Element-wise less, as bool."""

def less_equal(x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
    """Element-wise less_equal, as bool."""

def lexsort(keys: ArrayLike | Sequence[ArrayLike], axis: int = -1) -> NDArray[Any]:
    """Positions that sort by the last key, then the one before, and so on."""

def lgamma(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """log |gamma(x)|."""

def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Any:
    """`num` values from start to stop, which may be traced arrays; the last one is stop exactly."""

def local_response_norm(
    x: ArrayLike,
    size: int,
    alpha: float = 0.0001,
    beta: float = 0.75,
    k: float = 1.0,
) -> NDArray[Any]:
    """x[N, C, ...] / (k + alpha / size * s) ** beta, where s sums x² over `size` neighbours."""

def log(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise log; operands broadcast and promote as in NumPy 2."""

def log10(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise log10; operands broadcast and promote as in NumPy 2."""

def log1p(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise log1p; operands broadcast and promote as in NumPy 2."""

def log2(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise log2; operands broadcast and promote as in NumPy 2."""

def log_sigmoid(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise log_sigmoid; operands broadcast and promote as in NumPy 2."""

def log_softmax(x: ArrayLike, axis: int = -1, *, name: str = 'log_softmax') -> NDArray[Any]:
    """log_softmax of x along `axis`; integers become f64."""

def logaddexp(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise logaddexp; operands broadcast and promote as in NumPy 2."""

def logaddexp2(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise logaddexp2; operands broadcast and promote as in NumPy 2."""

def logical_and(*operands: Any) -> NDArray[Any]:
    """Element-wise logical and: every element that is not zero is true."""

def logical_not(*operands: Any) -> NDArray[Any]:
    """Element-wise logical not: every element that is not zero is true."""

def logical_or(*operands: Any) -> NDArray[Any]:
    """Element-wise logical or: every element that is not zero is true."""

def logical_xor(*operands: Any) -> NDArray[Any]:
    """Element-wise logical xor: every element that is not zero is true."""

def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> NDArray[Any]:
    """base to the powers of a linspace; start, stop and base may be arrays."""

def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> NDArray[Any]:
    """log(sum(exp(a))) over `axis` (None: all), computed without overflow."""

def mae(x: ArrayLike, y: ArrayLike, reduction: str = 'mean') -> NDArray[Any]:
    """|x - y|."""

def matmul(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """a @ b as NumPy: vectors count as a row on the left and a column on the right."""

def matrix_transpose(x: ArrayLike) -> NDArray[Any]:
    """x with its last two axes exchanged."""

def matvec(a: ArrayLike, v: ArrayLike) -> NDArray[Any]:
    """Stacked matrices times stacked vectors."""

def max(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The max over `axis` (None: all axes); NaN wins. Raises if it is empty."""

def max_pool(
    x: ArrayLike,
    window: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] | str | Sequence[tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> NDArray[Any]:
    """The maximum over windows of x[N, C, *spatial]; the stride is the window by default."""

def maximum(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise maximum; operands broadcast and promote as in NumPy 2."""

def mean(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The arithmetic mean over `axis`; f64 for integers."""

def median(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
) -> NDArray[Any]:
    """The middle of the sorted elements, or the mean of the two in the middle; NaN wins."""

def meshgrid(
    *arrays: ArrayLike,
    copy: bool = True,
    sparse: bool = False,
    indexing: str = 'xy',
) -> tuple[NDArray[Any], ...]:
    """Coordinate arrays of the grid that vectors span."""

def min(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The min over `axis` (None: all axes); NaN wins. Raises if it is empty."""

def min_pool(
    x: ArrayLike,
    window: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] | str | Sequence[tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> NDArray[Any]:
    """The minimum over windows of x[N, C, *spatial]; the stride is the window by default."""

def minimum(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise minimum; operands broadcast and promote as in NumPy 2."""

def mish(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise mish; operands broadcast and promote as in NumPy 2."""

def mod(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise remainder; operands broadcast and promote as in NumPy 2."""

def modf(x: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """(fraction, whole part) of floats, both with the sign of x."""

def moveaxis(
    x: ArrayLike,
    source: int | Sequence[int],
    destination: int | Sequence[int],
) -> NDArray[Any]:
    """x with some axes moved to new positions, the others in their order."""

def mse(x: ArrayLike, y: ArrayLike, reduction: str = 'mean') -> NDArray[Any]:
    """(x - y)**2."""

def multiply(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise multiply; operands broadcast and promote as in NumPy 2."""

def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: float = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> NDArray[Any]:
    """x with NaN replaced by `nan` and infinities by the largest finite values or those given."""

def nanargmax(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    **options: Any,
) -> NDArray[Any]:
    """argmax that passes over NaN."""

def nanargmin(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    **options: Any,
) -> NDArray[Any]:
    """argmin that passes over NaN."""

def nancumprod(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    **options: Any,
) -> NDArray[Any]:
    """cumprod that passes over NaN."""

def nancumsum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    **options: Any,
) -> NDArray[Any]:
    """cumsum that passes over NaN."""

def nanmax(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The max of what is not NaN; NaN where nothing is left."""

def nanmean(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The mean of what is not NaN."""

def nanmedian(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
) -> NDArray[Any]:
    """The median of what is not NaN; NaN where nothing is."""

def nanmin(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The min of what is not NaN; NaN where nothing is left."""

def nanpercentile(
    x: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    method: str = 'linear',
    keepdims: bool = False,
    **options: Any,
) -> NDArray[Any]:
    """nanquantile with q in 0..100."""

def nanprod(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The prod of what is not NaN."""

def nanquantile(
    x: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    method: str = 'linear',
    keepdims: bool = False,
    **options: Any,
) -> NDArray[Any]:
    """Quantiles of what is not NaN; NaN where nothing is."""

def nanstd(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    **options: Any,
) -> NDArray[Any]:
    """The standard deviation of what is not NaN; the options are those of nanvar."""

def nansum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The sum of what is not NaN."""

def nanvar(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike = True,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> NDArray[Any]:
    """The variance of what is not NaN."""

def ndim(x: ArrayLike) -> int:
    """The number of axes of an array, a traced one or a number (0)."""

def negative(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise negative; operands broadcast and promote as in NumPy 2."""

def nextafter(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """The next float after x towards y."""

def nll(
    log_probabilities: ArrayLike,
    labels: ArrayLike,
    axis: int = -1,
    reduction: str = 'mean',
    ignore_index: int | None = None,
) -> NDArray[Any]:
    """-log p[label] given log probabilities; labels and `ignore_index` as in cross_entropy."""

def nonzero(x: ArrayLike, size: int | None = None, fill_value: int = 0) -> tuple[NDArray[Any], ...]:
    """Positions of what is not zero, one vector per axis: all, or the first `size`, then
    fill_value.
    """

def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> NDArray[Any]:
    """NumPy's norm: Frobenius or 2-norm by default, vector norms, and the 1, inf, 2 and nuclear
    norms of matrices.
    """

def not_equal(x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
    """Element-wise not_equal, as bool."""

def one_hot(indices: ArrayLike, count: int, dtype: DTypeLike = ..., axis: int = -1) -> NDArray[Any]:
    """A new axis with 1 at the index and 0 elsewhere; an index out of range gives zeros."""

def ones(
    shape: int | Sequence[int],
    dtype: DTypeLike | None = None,
    order: str = 'C',
    **options: Any,
) -> NDArray[Any]:
    """Ones; f64 by default as in NumPy."""

def ones_like(
    x: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = 'K',
    subok: bool = True,
    shape: int | Sequence[int] | None = None,
    **options: Any,
) -> NDArray[Any]:
    """Ones in the shape and dtype of x."""

def outer(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """All products of the elements of two flattened arrays."""

def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = 'big') -> NDArray[Any]:
    """Eight elements along an axis (None: flattened) become the bits of one u8: those that are not
    0 are 1. Zeros fill the last one.
    """

def pad(x: ArrayLike, pad_width: ArrayLike, mode: str = 'constant', **named: Any) -> NDArray[Any]:
    """np.pad: every mode given by name, with its own keyword arguments."""

def partition(
    x: ArrayLike,
    kth: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: str | None = None,
) -> NDArray[Any]:
    """x sorted along an axis, which is one of the orders np.partition may return."""

def percentile(
    x: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    method: str = 'linear',
    keepdims: bool = False,
    **options: Any,
) -> NDArray[Any]:
    """quantile with q in 0..100."""

def permute_dims(x: ArrayLike, *axes: int | Sequence[int] | None, **named: Any) -> NDArray[Any]:
    """x with its axes reversed, or in the order given as one sequence or as several ints."""

def place(x: ArrayLike, mask: ArrayLike, values: ArrayLike) -> None:
    """Set the elements of a traced array where a mask holds to the values one after the other,
    which start again where there are too few.
    """

def poly(seq_of_zeros: ArrayLike) -> NDArray[Any]:
    """The coefficients of the polynomial with these roots."""

def polyadd(a1: ArrayLike, a2: ArrayLike) -> NDArray[Any]:
    """The coefficients of a sum of polynomials."""

def polyder(p: ArrayLike, m: int = 1) -> NDArray[Any]:
    """The coefficients of the m-th derivative."""

def polydiv(u: ArrayLike, v: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """(quotient, remainder) of polynomials, the remainder as long as v less one."""

def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool = False,
) -> NDArray[Any]:
    """Coefficients, the highest power first, of the polynomial of a degree that is closest to y at
    x, weighted by w; `full` and `cov` are refused.
    """

def polygamma(n: int, x: ArrayLike) -> NDArray[Any]:
    """The n-th derivative of digamma, n = 0 to 20 (digamma itself for 0).

    Raises TypeRuleError for another n or complex x.
    """

def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> NDArray[Any]:
    """The coefficients of the m-th integral, with the constants k (0 by default)."""

def polymul(a1: ArrayLike, a2: ArrayLike) -> NDArray[Any]:
    """The coefficients of a product of polynomials."""

def polysub(a1: ArrayLike, a2: ArrayLike) -> NDArray[Any]:
    """The coefficients of a difference of polynomials."""

def polyval(p: ArrayLike, x: ArrayLike) -> NDArray[Any]:
    """The polynomial with coefficients p, highest power first, at x."""

def positive(x: ArrayLike) -> NDArray[Any]:
    """x itself. Raises TypeRuleError for bool, as NumPy does."""

def pow(x: ArrayLike, y: ArrayLike, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """x ** y, promoted as in NumPy. The Python exponents 2, 1, 1/2 and -1 take their own short ops.

    Raises TypeRuleError for an integer array to a negative Python integer.
    """

def power(x: ArrayLike, y: ArrayLike, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """x ** y, promoted as in NumPy. The Python exponents 2, 1, 1/2 and -1 take their own short ops.

    Raises TypeRuleError for an integer array to a negative Python integer.
    """

def prod(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The prod over `axis` (None: all axes); small integers widen to 64 bits."""

def ptp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
) -> NDArray[Any]:
    """max - min over `axis`."""

def put(x: ArrayLike, indices: ArrayLike, values: ArrayLike, mode: str = 'raise') -> None:
    """Set elements of a traced array at row-major positions; values repeat as needed."""

def put_along_axis(
    x: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
) -> NDArray[Any]:
    """x with the elements at an array of positions along one axis replaced.

    As NumPy's it changes a traced array in place; the new array is also returned.
    """

def putmask(x: ArrayLike, mask: ArrayLike, values: ArrayLike) -> None:
    """Set elements of a traced array where a mask holds, from values repeated to its shape."""

def quantile(
    x: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    method: str = 'linear',
    keepdims: bool = False,
    **options: Any,
) -> NDArray[Any]:
    """Quantiles along axes; q may be traced. The axes of q come first; NaN spreads.

    A q outside of 0..1 is an error: where it is traced, a RunError of an index out of range.
    """

def rad2deg(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise degrees; operands broadcast and promote as in NumPy 2."""

def radians(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise radians; operands broadcast and promote as in NumPy 2."""

def ravel(x: ArrayLike, order: str = 'C') -> NDArray[Any]:
    """The elements as one row."""

def ravel_multi_index(
    multi_index: ArrayLike,
    dims: int | Sequence[int],
    mode: ArrayLike = 'raise',
    order: str = 'C',
) -> NDArray[Any]:
    """One position per axis as positions in an array of extents `dims`.

    What lies outside raises RunError, or is clipped or wrapped by `mode`, one or one for each axis.
    """

def real(x: ArrayLike) -> NDArray[Any]:
    """The real part; a real array itself."""

def reciprocal(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise reciprocal; operands broadcast and promote as in NumPy 2."""

def relu(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """max(x, 0)."""

def relu6(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise relu6; operands broadcast and promote as in NumPy 2."""

def remainder(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise remainder; operands broadcast and promote as in NumPy 2."""

def repeat(x: ArrayLike, repeats: ArrayLike, axis: int | None = None) -> NDArray[Any]:
    """Every element (or sub-array along an axis) repeated, all as often or each by its count;
    a traced count below zero is a ValueError of the run.
    """

def resample(x: ArrayLike, axis: int, places: ArrayLike, weights: ArrayLike) -> NDArray[Any]:
    """Weighted sums of elements along an axis: sum over k of x[places[:, k]] * weights[:, k].

    places and weights are arrays of shape [new extent, neighbours].
    """

def reshape(
    x: ArrayLike,
    *dims: int | Sequence[int],
    shape: int | Sequence[int] | None = None,
    order: str = 'C',
    copy: bool | None = None,
) -> NDArray[Any]:
    """The elements of x in row-major order under a new shape; one extent may be -1."""

def resize(x: ArrayLike, new_shape: int | Sequence[int]) -> NDArray[Any]:
    """x's elements repeated or cut to fill a new shape."""

def right_shift(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise right_shift; operands broadcast and promote as in NumPy 2."""

def rint(x: ArrayLike) -> NDArray[Any]:
    """The nearest integer, halves to even, as a float."""

def rms_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: int | Sequence[int] | None = -1,
    epsilon: float = 1e-05,
) -> NDArray[Any]:
    """x / sqrt(mean(x**2) + epsilon) over `axis`, times weight, plus bias."""

def roi_align(
    x: ArrayLike,
    boxes: ArrayLike,
    batch: ArrayLike,
    size: tuple[int, int],
    scale: float = 1.0,
    samples: int = 2,
    kind: str = 'mean',
    aligned: bool = True,
    counts: ArrayLike | None = None,
) -> NDArray[Any]:
    """Regions of x[N, C, H, W] resampled to [R, C, *size], from boxes[R, 4] = (x1, y1, x2, y2).

    Each cell is the mean or the maximum ("max") of samples² positions; batch[R] names the images.
    counts[R, 2] says how many positions the cells of a box have along y and x instead, none above
    `samples`; a cell of none is 0.
    """

def roll(x: ArrayLike, shift: ArrayLike, axis: int | Sequence[int] | None = None) -> NDArray[Any]:
    """x moved along axes by shifts (may be traced); what leaves at one end enters at the other."""

def rollaxis(x: ArrayLike, axis: int, start: int = 0) -> NDArray[Any]:
    """x with one axis moved to lie before another."""

def rot90(x: ArrayLike, k: int = 1, axes: tuple[int, int] = ...) -> NDArray[Any]:
    """x turned k times by 90 degrees in the plane of two axes, first towards second."""

def round(x: ArrayLike, decimals: int = 0) -> NDArray[Any]:
    """x rounded to `decimals` digits after the point, halves to even (as NumPy: by scaling).

    Raises TypeRuleError for more than 308 decimals.
    """

def rsqrt(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """1 / sqrt(x)."""

def sample_at(x: ArrayLike, rows: ArrayLike, columns: ArrayLike) -> NDArray[Any]:
    """x[..., C, H, W] read at real positions rows, columns [..., *places], bilinear, 0 outside:
    [..., C, *places].
    """

def searchsorted(
    a: ArrayLike,
    v: ArrayLike,
    side: str = 'left',
    sorter: ArrayLike | None = None,
) -> NDArray[Any]:
    """The insertion point of each value of v in the sorted vector a."""

def select(
    conditions: Sequence[ArrayLike],
    choices: Sequence[ArrayLike],
    default: ArrayLike = 0,
) -> NDArray[Any]:
    """The choice of the first condition that holds, or the default."""

def selu(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise selu; operands broadcast and promote as in NumPy 2."""

def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> NDArray[Any]:
    """The elements of ar1 that are not in ar2, in ascending order and each once: all, or the first
    `size`.
    """

def setitem(x: ArrayLike, index: Any, value: ArrayLike) -> NDArray[Any]:
    """What x is after x[index] = value."""

def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> NDArray[Any]:
    """The elements in one but not in both, in ascending order and each once: all, or the first
    `size`.
    """

def shape(x: ArrayLike) -> tuple[int, ...]:
    """The shape of a value, an array, a number or lists of them. Raises GraphError for others."""

def sigmoid(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """1 / (1 + exp(-x))."""

def sign(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise sign; operands broadcast and promote as in NumPy 2."""

def signbit(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise signbit; operands broadcast and promote as in NumPy 2."""

def silu(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise silu; operands broadcast and promote as in NumPy 2."""

def sin(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise sin; operands broadcast and promote as in NumPy 2."""

def sinc(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise sinc; operands broadcast and promote as in NumPy 2."""

def sinh(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise sinh; operands broadcast and promote as in NumPy 2."""

def size(x: ArrayLike, axis: int | None = None) -> int:
    """The number of elements, or the extent of one axis."""

def sliding_window_view(
    x: ArrayLike,
    window_shape: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> NDArray[Any]:
    """All windows of a shape along axes (None: all), as new axes at the end; a copy of its own."""

def softmax(x: ArrayLike, axis: int = -1, *, name: str = 'softmax') -> NDArray[Any]:
    """softmax of x along `axis`; integers become f64."""

def softmin(x: ArrayLike, axis: int = -1) -> NDArray[Any]:
    """softmax(-x)."""

def softplus(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise softplus; operands broadcast and promote as in NumPy 2."""

def softsign(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise softsign; operands broadcast and promote as in NumPy 2."""

def sort(
    x: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = None,
) -> NDArray[Any]:
    """x sorted along an axis (None: flattened), NaNs as the greatest values."""

def sort_complex(a: ArrayLike) -> NDArray[Any]:
    """The elements along the last axis in ascending order, as complex numbers."""

def space_to_depth(x: ArrayLike, block: int, depth_first: bool = True) -> NDArray[Any]:
    """Blocks of the image x[N, C, H, W] become channels: [N, C b², H / b, W / b]."""

def spacing(x: ArrayLike) -> NDArray[Any]:
    """The distance to the next number away from 0, with the sign of x."""

def split(x: ArrayLike, indices_or_sections: ArrayLike, axis: int = 0) -> list[NDArray[Any]]:
    """x cut along an axis into equal sections, or at the given indices."""

def sqrt(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise sqrt; operands broadcast and promote as in NumPy 2."""

def square(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise square; operands broadcast and promote as in NumPy 2."""

def squeeze(x: ArrayLike, axis: int | Sequence[int] | None = None) -> NDArray[Any]:
    """x without its axes of extent 1, or without the given ones."""

def stack(
    arrays: Sequence[ArrayLike],
    axis: int = 0,
    dtype: DTypeLike | None = None,
    casting: str = 'same_kind',
) -> NDArray[Any]:
    """Arrays of one shape joined along a new axis."""

def std(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: NDArray[Any] | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> NDArray[Any]:
    """The std over `axis`, dividing by the count less `ddof` (`correction`)."""

def stft(
    x: ArrayLike,
    step: int,
    length: int,
    window: int | Sequence[int] | None = None,
    onesided: bool = True,
    imag: ArrayLike | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The Fourier transforms of windows that slide along the last axis of x: [..., frames, kept]
    as (real, imaginary).
    """

def subtract(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise subtract; operands broadcast and promote as in NumPy 2."""

def sum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: NDArray[Any] | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> NDArray[Any]:
    """The sum over `axis` (None: all axes); small integers widen to 64 bits."""

def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> NDArray[Any]:
    """x with two axes exchanged."""

def swish(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise silu; operands broadcast and promote as in NumPy 2."""

def take(
    x: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    mode: str = 'raise',
) -> NDArray[Any]:
    """Elements (sub-arrays along an axis) of x at integer positions."""

def take_along_axis(
    x: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str = 'raise',
) -> NDArray[Any]:
    """Elements of x whose position along one axis is given by an array of indices."""

def tan(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise tan; operands broadcast and promote as in NumPy 2."""

def tanh(x: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise tanh; operands broadcast and promote as in NumPy 2."""

def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] = 2) -> NDArray[Any]:
    """Sum over the given axes of a and b: a count of adjacent axes, or two lists."""

def tile(x: ArrayLike, reps: ArrayLike) -> NDArray[Any]:
    """x repeated as a whole reps[k] times along axis k."""

def topk(
    x: ArrayLike,
    k: int,
    axis: int = -1,
    largest: bool = True,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(values, positions) of the k greatest or smallest elements along an axis, in order."""

def trace(
    x: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
) -> NDArray[Any]:
    """The sum of a diagonal."""

def transpose(x: ArrayLike, *axes: int | Sequence[int] | None, **named: Any) -> NDArray[Any]:
    """x with its axes reversed, or in the order given as one sequence or as several ints."""

def trapezoid(
    y: ArrayLike,
    x: ArrayLike | None = None,
    dx: float = 1.0,
    axis: int = -1,
) -> NDArray[Any]:
    """The integral of y by the trapezoidal rule, over positions x or steps of dx."""

def tri(
    n: ArrayLike,
    m: ArrayLike | None = None,
    k: ArrayLike = 0,
    dtype: DTypeLike | None = None,
    **options: Any,
) -> NDArray[Any]:
    """Ones at and below the k-th diagonal, zeros above."""

def tril(x: ArrayLike, k: ArrayLike = 0) -> NDArray[Any]:
    """x at and below its k-th diagonal, zeros above."""

def trim_zeros(
    filt: ArrayLike,
    trim: str = 'fb',
    axis: int | Sequence[int] | None = None,
) -> NDArray[Any]:
    """An array without the zeros at its front ("f"), at its back ("b") or at both ends; of several
    axes the box that holds everything else.
    """

def triu(x: ArrayLike, k: ArrayLike = 0) -> NDArray[Any]:
    """x at and above its k-th diagonal, zeros below."""

def true_divide(x: ArrayLike, y: ArrayLike, /, *, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Element-wise divide; operands broadcast and promote as in NumPy 2."""

def trunc(x: ArrayLike) -> NDArray[Any]:
    """trunc of floats; integers and bools are returned as they are."""

def truncate16(x: ArrayLike, mode: str = 'truncate') -> NDArray[Any]:
    """The upper 16 bits of f32 values as u16: half the bytes, 8 significant bits.

    mode   "truncate" cuts the rest off, "nearest" rounds halves to even, "saturate" does so but
           keeps finite values finite
    """

def union1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> NDArray[Any]:
    """The elements of both, in ascending order and each once: all, or the first `size`."""

def unique(
    x: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    *,
    equal_nan: bool = True,
    axis: int | None = None,
) -> Any:
    """The distinct values of x in ascending order, or its distinct parts along an axis: all, or the
    first `size`, then fill_value (the least value by default).

    NaNs count as equal unless told otherwise. Index, inverse and counts follow as asked for;
    left-over counts are 0.
    """

def unique_all(
    x: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """np.unique_all, where NaNs differ: the first `size` distinct values."""

def unique_counts(
    x: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """np.unique_counts, where NaNs differ: the first `size` distinct values."""

def unique_inverse(
    x: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """np.unique_inverse, where NaNs differ: the first `size` distinct values."""

def unique_values(
    x: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> NDArray[Any]:
    """np.unique_values, where NaNs differ: the first `size` distinct values."""

def unpackbits(
    a: ArrayLike,
    axis: int | None = None,
    count: int | None = None,
    bitorder: str = 'big',
) -> NDArray[Any]:
    """The bits of u8 along an axis (None: flattened): the first `count`, all but the last -count,
    or zeros behind them.
    """

def unravel_index(
    indices: ArrayLike,
    shape: int | Sequence[int],
    order: str = 'C',
) -> tuple[NDArray[Any], ...]:
    """Positions in an array as one position per axis; they are not checked."""

def unstack(x: ArrayLike, axis: int = 0) -> tuple[NDArray[Any], ...]:
    """The sub-arrays along an axis, which they lose."""

def unwrap(
    p: ArrayLike,
    discont: ArrayLike | None = None,
    axis: int = -1,
    *,
    period: float = 6.283185307179586,
) -> NDArray[Any]:
    """Angles without jumps: steps of more than `discont` (half a period) become shorter ones."""

def vander(x: ArrayLike, n: int | None = None, increasing: bool = False) -> NDArray[Any]:
    """Powers of a vector as columns, falling from n - 1 to 0."""

def var(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: NDArray[Any] | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> NDArray[Any]:
    """The var over `axis`, dividing by the count less `ddof` (`correction`)."""

def vdot(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """The inner product of two flattened arrays; the first is conjugated."""

def vecdot(a: ArrayLike, b: ArrayLike, *, axis: int = -1) -> NDArray[Any]:
    """Inner products along an axis, the other axes broadcast; a is conjugated."""

def vecmat(v: ArrayLike, a: ArrayLike) -> NDArray[Any]:
    """Stacked vectors times stacked matrices; the vectors are conjugated."""

def vector_norm(
    x: ArrayLike,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> NDArray[Any]:
    """(sum |x|**ord)**(1/ord) over `axis`; ord inf, -inf and 0 are max, min and a count."""

def vsplit(x: ArrayLike, indices_or_sections: ArrayLike) -> NDArray[Any]:
    """split along axis 0."""

def vstack(
    arrays: Sequence[ArrayLike],
    dtype: DTypeLike | None = None,
    casting: str = 'same_kind',
) -> NDArray[Any]:
    """Arrays joined along axis 0; vectors are rows."""

def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
) -> tuple[NDArray[Any], ...]:
    """x where the condition holds, else y; all three broadcast, x and y promote.

    With a condition alone, where it holds: one vector of positions per axis.
    """

def widen16(x: ArrayLike) -> NDArray[Any]:
    """The f32 values whose upper 16 bits these u16 are (see `truncate16`)."""

def zeros(
    shape: int | Sequence[int],
    dtype: DTypeLike | None = None,
    order: str = 'C',
    **options: Any,
) -> NDArray[Any]:
    """Zeros; f64 by default as in NumPy."""

def zeros_like(
    x: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = 'K',
    subok: bool = True,
    shape: int | Sequence[int] | None = None,
    **options: Any,
) -> NDArray[Any]:
    """Zeros in the shape and dtype of x."""
