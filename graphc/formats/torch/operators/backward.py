"""Gradients that PyTorch has operators for: those of graphc for the operators they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.formats.torch.operators import layers, losses, products, shapes
from graphc.formats.torch.promotion import cast, dtype_of
from graphc.formats.torch.table import aten
from graphc.frontend.transforms.grad import vjp


def pulled(function: Callable[..., Any], gradient: Any, *operands: Any) -> tuple[Any, ...]:
    """The gradients of a function by its operands, for that of its result."""
    _, pullback = vjp(function, *operands)
    return tuple(pullback(gradient))


@aten("convolution_backward")
def convolution_backward(
    grad_output: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    from graphc.ops.record.value import functions as f

    def forward(a: Any, b: Any) -> Any:
        return products.convolution(
            a, b, None, stride, padding, dilation, transposed, output_padding, groups
        )

    one, two = pulled(forward, grad_output, x, weight)
    rest = tuple(k for k in range(grad_output.ndim) if k != 1)
    bias = f.sum(grad_output, axis=rest) if output_mask[2] else None
    return one if output_mask[0] else None, two if output_mask[1] else None, bias


def _slopes_of_norm(
    x: Any, gradient: Any, weighted: Any, mean: Any, sharp: Any, axes: tuple[int, ...]
) -> tuple[Any, Any]:
    """The gradient by x of (x - mean) * sharp, whose own one is `weighted`, and `gradient` times
    what was normalised."""
    from graphc.ops.record.value import functions as f

    unit = f.multiply(f.subtract(x, mean), sharp)
    level = f.mean(weighted, axis=axes, keepdims=True)
    share = f.mean(f.multiply(weighted, unit), axis=axes, keepdims=True)
    slope = f.subtract(f.subtract(weighted, level), f.multiply(unit, share))
    return f.multiply(slope, sharp), f.multiply(gradient, unit)


@aten("native_layer_norm_backward")
def layer_norm_backward(
    grad_out: Any,
    x: Any,
    normalized_shape: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    output_mask: Sequence[bool],
) -> tuple[Any, ...]:
    from graphc.ops.record.value import functions as f

    first = x.ndim - len(normalized_shape)
    weighted = grad_out if weight is None else f.multiply(grad_out, weight)
    one, two = _slopes_of_norm(x, grad_out, weighted, mean, rstd, tuple(range(first, x.ndim)))
    rest = tuple(range(first))
    made = one, f.sum(two, axis=rest), f.sum(grad_out, axis=rest)
    return tuple(v if asked else None for v, asked in zip(made, output_mask))


@aten("native_group_norm_backward")
def group_norm_backward(
    grad_out: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Any, ...]:
    from graphc.ops.record.value import functions as f

    def parts(v: Any) -> Any:
        return f.reshape(v, (N, group, C // group, HxW))

    held, given = parts(x), parts(grad_out)
    factor = 1 if weight is None else f.reshape(weight, (1, group, C // group, 1))
    mean, rstd = (f.reshape(v, (N, group, 1, 1)) for v in (mean, rstd))
    one, two = _slopes_of_norm(held, given, f.multiply(given, factor), mean, rstd, (2, 3))
    sums = (f.reshape(f.sum(v, axis=(0, 3)), (C,)) for v in (two, given))
    made = f.reshape(one, x.shape), *sums
    return tuple(v if asked else None for v, asked in zip(made, output_mask))


@aten("embedding_dense_backward")
def embedding_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """Sums over the places where each word stands; none for the one that pads."""
    from graphc.ops.record.value import functions as f

    places = f.reshape(indices, (-1,))
    rows = f.reshape(grad_output, (-1, grad_output.shape[-1]))
    rows = f.where(f.expand_dims(f.equal(places, padding_idx), 1), cast(0, dtype_of(rows)), rows)
    if scale_grad_by_freq:
        count = f.index_update(f.zeros((num_weights,), rows.dtype), places, 1, "add")
        rows = f.divide(rows, f.expand_dims(f.take(count, places), 1))
    return f.index_update(f.zeros((num_weights, rows.shape[1]), rows.dtype), places, rows, "add")


def _pool_backward(rank: int) -> Callable[..., Any]:
    def max_pool_backward(
        grad_output: Any,
        x: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        indices: Any,
    ) -> Any:
        pool = layers._max_pool(rank, False)

        def forward(a: Any) -> Any:
            return pool(a, kernel_size, stride, padding, dilation, ceil_mode)

        return pulled(forward, grad_output, x)[0]

    return max_pool_backward


def _avg_backward(rank: int) -> Callable[..., Any]:
    def avg_pool_backward(
        grad_output: Any,
        x: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: Any,
    ) -> Any:
        pool = layers._avg_pool(rank)

        def forward(a: Any) -> Any:
            how = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
            return pool(a, *how)

        return pulled(forward, grad_output, x)[0]

    return avg_pool_backward


def _adaptive_backward(rank: int) -> Callable[..., Any]:
    def adaptive_backward(grad_output: Any, x: Any) -> Any:
        wanted = grad_output.shape[-rank:]
        return pulled(lambda a: layers._adaptive_avg_pool(rank)(a, wanted), grad_output, x)[0]

    return adaptive_backward


for _rank in (2, 3):
    aten(f"max_pool{_rank}d_with_indices_backward")(_pool_backward(_rank))
    aten(f"avg_pool{_rank}d_backward")(_avg_backward(_rank))
    aten(f"_adaptive_avg_pool{_rank}d_backward")(_adaptive_backward(_rank))
    aten(f"adaptive_max_pool{_rank}d_backward")(
        lambda grad_output, x, indices, _rank=_rank: layers.put_back(
            grad_output, indices, x.shape[-_rank:], "add"
        )
    )


def _pad_backward(mode: str) -> Callable[..., Any]:
    def pad_backward(grad_output: Any, x: Any, padding: Any) -> Any:
        return pulled(lambda a: shapes.pad_(a, padding, mode), grad_output, x)[0]

    return pad_backward


for _rank in (1, 2, 3):
    aten(f"reflection_pad{_rank}d_backward")(_pad_backward("reflect"))
    aten(f"replication_pad{_rank}d_backward")(_pad_backward("replicate"))


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    def forward(q: Any, k: Any, v: Any) -> Any:
        return products.attention(q, k, v, attn_mask, dropout_p, is_causal, scale)

    return pulled(forward, grad_out, query, key, value)


def _upsample_backward(mode: str, antialias: bool = False) -> Callable[..., Any]:
    def upsample_backward(
        grad_output: Any,
        output_size: Any,
        input_size: Any,
        align_corners: bool = False,
        scales_d: Any = None,
        scales_h: Any = None,
        scales_w: Any = None,
        scales: Any = None,
    ) -> Any:
        from graphc.ops.record.value import functions as f

        if mode == "cubic" and not antialias and list(output_size) == list(input_size[2:]):
            return grad_output  # PyTorch's operators give the result another gradient than its own
        given = [s for s in (scales_d, scales_h, scales_w, scales) if s is not None]
        start = f.zeros(tuple(input_size), grad_output.dtype)

        def forward(a: Any) -> Any:
            return layers.upsampled(
                a, mode, output_size, align_corners, given, antialias, is_backward=True
            )

        return pulled(forward, grad_output, start)[0]

    return upsample_backward


for _rank, _linear in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    aten(f"upsample_{_linear}_backward")(_upsample_backward("linear"))
    aten(f"upsample_nearest{_rank}d_backward")(_upsample_backward("nearest"))
    aten(f"_upsample_nearest_exact{_rank}d_backward")(_upsample_backward("nearest_exact"))
aten("upsample_bicubic2d_backward")(_upsample_backward("cubic"))
aten("_upsample_bilinear2d_aa_backward")(_upsample_backward("linear", antialias=True))
aten("_upsample_bicubic2d_aa_backward")(_upsample_backward("cubic", antialias=True))


@aten("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    grad_output: Any,
    x: Any,
    grid: Any,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> Any:
    def forward(a: Any, g: Any) -> Any:
        return layers.grid_sampler(a, g, interpolation_mode, padding_mode, align_corners)

    return pulled(forward, grad_output, x, grid)


@aten("_weight_norm_interface_backward")
def weight_norm_backward(
    grad_w: Any, saved_v: Any, saved_g: Any, saved_norms: Any, dim: int
) -> tuple[Any, ...]:
    return pulled(lambda v, g: layers.weight_norm(v, g, dim), grad_w, saved_v, saved_g)


@aten("_cdist_backward")
def cdist_backward(grad: Any, x1: Any, x2: Any, p: float, cdist: Any) -> Any:
    """By the first operand; PyTorch asks for the second by exchanging them."""
    return pulled(lambda a: products.cdist(a, x2, p), grad, x1)[0]


@aten("_pdist_backward")
def pdist_backward(grad: Any, x: Any, p: float, pdist: Any) -> Any:
    return pulled(lambda a: products.pdist(a, p), grad, x)[0]


@aten("softshrink_backward", "hardshrink_backward")
def shrink_backward(
    grad_output: Any = None, x: Any = None, lambd: Any = 0.5, grad_out: Any = None
) -> Any:
    """Within the bounds there is none; NaN is outside."""
    from graphc.ops.record.value import functions as f

    gradient = grad_output if grad_output is not None else grad_out
    kind = dtype_of(x)
    inside = f.less_equal(f.abs(x), cast(lambd, kind))
    return f.where(inside, cast(0, kind), gradient)


@aten("multi_margin_loss_backward")
def multi_margin_backward(
    grad_output: Any,
    x: Any,
    target: Any,
    p: Any,
    margin: Any,
    weight: Any = None,
    reduction: int = 1,
) -> Any:
    def forward(a: Any) -> Any:
        return losses.multi_margin_loss(a, target, p, margin, weight, reduction)

    return pulled(forward, grad_output, x)[0]


@aten("multilabel_margin_loss_backward")
def multilabel_margin_backward(
    grad_output: Any, x: Any, target: Any, reduction: int, is_target: Any
) -> Any:
    def forward(a: Any) -> Any:
        return losses.multilabel_margin_loss_forward(a, target, reduction)[0]

    return pulled(forward, grad_output, x)[0]
