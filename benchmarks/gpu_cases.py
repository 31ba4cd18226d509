"""Programs that fill a GPU: what each is in graphc, in NumPy's words, in PyTorch and in JAX.

A row of `CASES` is a case.  `array` is what graphc, JAX and CuPy run alike, each with its own
module of NumPy's functions as the first argument; `graphc`, `torch` and `jax` say it otherwise,
with the library as their first argument.  `steps` prepares PyTorch's program from tensors, where
that is an object with state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.cases import sigmoid

Program = Callable[..., Any]
ITEMSIZE = {"f32": 4, "bf16": 2, "f16": 2, "i32": 4, "i64": 8, "u32": 4}
PERIOD = 1_048_583  # random elements of a large array, repeated: a prime, so that rows differ


@dataclass(frozen=True)
class Operand:
    """An argument: normal numbers, integers `below` a number, or floats in [0, 1) of which hardly
    any is there twice (`spread`)."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    below: int = 0
    scale: float = 1.0
    spread: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class Case:
    """One row. `flops` and `bytes` are the least that any program for it needs; `unit` is what
    multiplies. `judged` is false where libraries draw numbers of their own."""

    name: str
    operands: tuple[Operand, ...]
    array: Program | None = None
    graphc: Program | None = None
    torch: Program | None = None
    jax: Program | None = None
    steps: Program | None = None
    flops: float = 0.0
    bytes: float = 0.0
    unit: str = "f32"
    tolerance: float = 1e-4
    judged: bool = True
    compiled: bool = False  # torch.compile makes another program of it
    nested: Callable[[], tuple[Any, ...]] | None = None  # arguments that are no operands


def f32(*shape: int, scale: float = 1.0) -> Operand:
    return Operand(shape, scale=scale)


def bf16(*shape: int, scale: float = 1.0) -> Operand:
    return Operand(shape, "bf16", scale=scale)


def integers(below: int, *shape: int) -> Operand:
    return Operand(shape, "i32", below)


def spread(*shape: int) -> Operand:
    return Operand(shape, spread=True)


@cache
def random_block(dtype: str, below: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    if below:
        return rng.integers(0, below, PERIOD).astype(np.int32)
    return rng.standard_normal(PERIOD, np.float32)


def host_array(operand: Operand) -> np.ndarray:
    """The numbers of an operand; bf16 as `ml_dtypes` has it."""
    size = math.prod(operand.shape)
    if operand.spread:
        mixed = np.arange(size, dtype=np.uint32) * np.uint32(2654435761)
        return (mixed >> np.uint32(8)).astype(np.float32).reshape(operand.shape) * 2.0**-24
    block = random_block(operand.dtype, operand.below)
    if operand.dtype not in ("i32", "u32"):
        block = (block * np.float32(operand.scale)).astype(numpy_dtype(operand.dtype))
    return np.resize(block, operand.shape)


def numpy_dtype(name: str) -> np.dtype:
    if name == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"f32": "f4", "f16": "f2", "i32": "i4", "i64": "i8", "u32": "u4"}[name])


M = 1 << 20
ROWS, WIDTH = 16384, 4096
LONG = f32(ROWS, WIDTH)

# ------------------------------------------------------------------------------- what moves bytes


def chain(np, x, y):
    x = x * 1.5 + 0.5
    gelu = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    return gelu / (1 + np.exp(-y))


def softmax_case(rows: int, width: int) -> Case:
    def array(np, x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    return Case(
        f"softmax-{shown(rows)}x{shown(width)}",
        (f32(rows, width),),
        array,
        torch=lambda torch, x: torch.softmax(x, -1),
        jax=lambda jax, x: jax.nn.softmax(x),
        bytes=8 * rows * width,
    )


def shown(count: int) -> str:
    return f"{count // M}M" if count >= M else str(count)


def layer_norm(np, x, scale, shift):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * scale + shift


def rms_residual(gc, x, r, w):
    h = x + r
    return gc.rms_norm(h, w, axis=-1, epsilon=1e-5), h


def rms_residual_torch(torch, x, r, w):
    h = x + r
    return torch.nn.functional.rms_norm(h, (h.shape[-1],), w, 1e-5), h


def rms_residual_jax(jax, x, r, w):
    np, h = jax.numpy, x + r
    wide = h.astype(np.float32)
    root = jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)
    return (wide * root).astype(h.dtype) * w, h


def reductions() -> list[Case]:
    made = []
    for name in ("sum", "max", "mean"):
        for where, axis in (("all", None), ("rows", 1), ("columns", 0)):

            def array(np, x, name=name, axis=axis):
                return getattr(np, name)(x, axis=axis)

            def torch(torch, x, name=name, axis=axis):
                if axis is None:
                    return getattr(torch, name)(x)
                made = getattr(torch, name)(x, dim=axis)
                return made[0] if name == "max" else made

            # A sum of all is near to nothing beside its terms.
            tolerance = 1e-2 if axis is None else 1e-4
            made.append(
                Case(
                    f"{name}-{where}",
                    (LONG,),
                    array,
                    torch=torch,
                    bytes=LONG.nbytes,
                    tolerance=tolerance,
                )
            )
    return made


def memory_cases() -> list[Case]:
    table, ids = f32(256 << 10, 256), integers(256 << 10, M)
    long, keys = f32(64 * M), spread(16 * M)
    return [
        Case("copy-64M", (long,), lambda np, x: -x, bytes=8 * 64 * M, torch=lambda t, x: -x),
        Case(
            "chain-64M",
            (long, f32(64 * M, scale=0.5)),
            chain,
            torch=lambda torch, x, y: (
                torch.nn.functional.gelu(x * 1.5 + 0.5, approximate="tanh") * torch.sigmoid(y)
            ),
            bytes=12 * 64 * M,
            compiled=True,
        ),
        Case(
            "cast-64M-bf16",
            (long,),
            graphc=lambda gc, x: gc.astype(x, "bf16"),
            torch=lambda torch, x: x.to(torch.bfloat16),
            jax=lambda jax, x: x.astype("bfloat16"),
            bytes=6 * 64 * M,
        ),
        softmax_case(ROWS, WIDTH),
        softmax_case(M, 64),
        softmax_case(64, M),
        Case(
            "layernorm-16384x4096",
            (LONG, f32(WIDTH), f32(WIDTH)),
            layer_norm,
            torch=lambda torch, x, s, t: torch.nn.functional.layer_norm(x, s.shape, s, t),
            bytes=2 * LONG.nbytes,
            compiled=True,
        ),
        Case(
            "rmsnorm-residual-bf16",
            (bf16(ROWS, WIDTH), bf16(ROWS, WIDTH, scale=0.5), bf16(WIDTH)),
            graphc=rms_residual,
            torch=rms_residual_torch,
            jax=rms_residual_jax,
            bytes=2 * LONG.nbytes,
            tolerance=2e-2,
            compiled=True,
        ),
        *reductions(),
        Case(
            "argmax-rows",
            (LONG,),
            lambda np, x: np.argmax(x, axis=1),
            torch=lambda torch, x: torch.argmax(x, 1),
            bytes=LONG.nbytes,
        ),
        Case(
            "argmax-all",
            (keys,),
            lambda np, x: np.argmax(x),
            torch=lambda torch, x: torch.argmax(x),
            bytes=keys.nbytes,
        ),
        *(
            Case(
                f"transpose-{o.dtype}",
                (o,),
                lambda np, x: np.swapaxes(x, 0, 1).copy(),
                torch=lambda torch, x: x.t().contiguous(),
                jax=lambda jax, x: x.T,
                bytes=2 * o.nbytes,
            )
            for o in (f32(8192, 8192), bf16(8192, 8192))
        ),
        Case(
            "heads-transpose",
            (f32(32, 1024, 16, 128),),
            lambda np, x: np.transpose(x, (0, 2, 1, 3)).copy(),
            torch=lambda torch, x: x.transpose(1, 2).contiguous(),
            jax=lambda jax, x: x.transpose(0, 2, 1, 3),
            bytes=8 * 64 * M,
        ),
        *(
            Case(
                f"concatenate-{axis}",
                (f32(ROWS, 2048), f32(ROWS, 2048, scale=0.5)),
                lambda np, x, y, axis=axis: np.concatenate([x, y], axis),
                torch=lambda torch, x, y, axis=axis: torch.cat([x, y], axis),
                bytes=2 * LONG.nbytes,
            )
            for axis in (0, 1)
        ),
        Case(
            "gather-1Mx256",
            (table, ids),
            lambda np, x, i: np.take(x, i, axis=0),
            torch=lambda torch, x, i: torch.nn.functional.embedding(i, x),
            bytes=8 * 256 * M + ids.nbytes,
        ),
        Case(
            "scatter-add-1Mx256",
            (table, ids, f32(M, 256)),
            graphc=scatter_add,
            torch=lambda torch, x, i, v: x.index_add(0, i, v),
            jax=lambda jax, x, i, v: x.at[i].add(v),
            bytes=4 * 256 * M + 2 * table.nbytes + ids.nbytes,
        ),
        Case(
            "cumsum-64M",
            (spread(64 * M),),
            lambda np, x: np.cumsum(x),
            torch=lambda torch, x: torch.cumsum(x, 0),
            bytes=8 * 64 * M,
            tolerance=1e-3,
        ),
        *(
            Case(
                f"cumsum-{name}",
                (LONG,),
                lambda np, x, axis=axis: np.cumsum(x, axis),
                torch=lambda torch, x, axis=axis: torch.cumsum(x, axis),
                bytes=2 * LONG.nbytes,
                tolerance=1e-3,
            )
            for name, axis in (("rows", 1), ("columns", 0))
        ),
        *sorts(keys, "16M"),
        *sorts(f32(ROWS, 1024), "rows-1024"),
        Case(
            "cross-entropy-50k",
            (f32(8192, 50304), integers(50304, 8192)),
            graphc=lambda gc, x, labels: gc.cross_entropy(x, labels),
            torch=lambda torch, x, labels: torch.nn.functional.cross_entropy(x, labels.long()),
            jax=jax_cross_entropy,
            bytes=4 * 8192 * 50304,
            compiled=True,
        ),
        Case(
            "cross-entropy-50k-gradient",
            (f32(8192, 50304), integers(50304, 8192)),
            graphc=lambda gc, x, labels: gc.grad(gc.cross_entropy)(x, labels),
            torch=torch_cross_entropy_gradient,
            jax=lambda jax, x, labels: jax.grad(lambda x: jax_cross_entropy(jax, x, labels))(x),
            bytes=8 * 8192 * 50304,
        ),
        Case(
            "adamw-100M",
            tuple(Operand((100 * M,), scale=s) for s in (1.0, 0.1, 0.01, 0.02)),
            adamw,
            graphc=lambda gc, p, g, m, v: adamw(gc, p, g, m, v * v),
            jax=lambda jax, p, g, m, v: adamw(jax.numpy, p, g, m, v * v),
            torch=lambda torch, p, g, m, v: adamw(torch, p, g, m, v * v),
            steps=torch_adamw,
            bytes=7 * 4 * 100 * M,
            judged=False,  # PyTorch's moves in place
            compiled=True,
        ),
        Case(
            "dropout-64M",
            (long,),
            graphc=lambda gc, x: gc.nn.dropout(x, 0.1, gc.random.key(7)),
            torch=lambda torch, x: torch.nn.functional.dropout(x, 0.1),
            jax=lambda jax, x: jax.numpy.where(
                jax.random.bernoulli(jax.random.key(7), 0.9, x.shape), x / 0.9, 0
            ),
            bytes=8 * 64 * M,
            judged=False,
        ),
        Case(
            "normal-64M",
            (),
            graphc=lambda gc: gc.random.normal(gc.random.key(7), (64 * M,)),
            torch=lambda torch: torch.randn(64 * M),
            jax=lambda jax: jax.random.normal(jax.random.key(7), (64 * M,)),
            bytes=4 * 64 * M,
            judged=False,
        ),
    ]


def scatter_add(gc, x, i, v):
    x = np.copy(x)
    np.add.at(x, i, v)
    return x


def sorts(keys: Operand, name: str) -> list[Case]:
    k = 64 if len(keys.shape) == 1 else 8
    return [
        Case(
            f"sort-{name}",
            (keys,),
            lambda np, x: np.sort(x, axis=-1),
            torch=lambda torch, x: torch.sort(x, -1).values,
            bytes=2 * keys.nbytes,
        ),
        Case(
            f"argsort-{name}",
            (keys,),
            graphc=lambda gc, x: gc.argsort(x, axis=-1),
            torch=lambda torch, x: torch.sort(x, stable=True, dim=-1).indices,
            jax=lambda jax, x: jax.numpy.argsort(x, -1),
            bytes=3 * keys.nbytes,
        ),
        Case(
            f"topk-{name}",
            (keys,),
            graphc=lambda gc, x: gc.topk(x, k)[0],
            torch=lambda torch, x: torch.topk(x, k).values,
            jax=lambda jax, x: jax.lax.top_k(x, k)[0],
            bytes=keys.nbytes,
        ),
    ]


def jax_cross_entropy(jax, x, labels):
    chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1)
    return -chosen.mean()


def torch_cross_entropy_gradient(torch, x, labels):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        loss = torch.nn.functional.cross_entropy(x, labels.long())
        return torch.autograd.grad(loss, x)[0]


def adamw(np, p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    p = p * (1 - 1e-5) - 1e-3 * (m / 0.1) / (np.sqrt(v / 0.001) + 1e-8)
    return p, m, v


def torch_adamw(torch, p, g, m, v):
    p = p.clone().requires_grad_()
    p.grad = g
    optimiser = torch.optim.AdamW([p], 1e-3, fused=True)

    def step():
        optimiser.step()
        return p.detach()

    return step


# -------------------------------------------------------------------------------- what multiplies


def product_cases() -> list[Case]:
    made = []
    for dtype in ("f32", "bf16", "f16"):
        sizes = (1024, 2048, 4096, 8192)
        made += [product(f"matmul-{dtype}-{n}", dtype, (n, n), (n, n)) for n in sizes]
    for dtype in ("f32", "bf16"):
        made.append(product(f"matmul-{dtype}-64x512", dtype, (64, 512, 512), (64, 512, 512)))
        for rows in (1, 8, 16):
            name = f"matmul-{dtype}-{rows}x4096x4096"
            made.append(product(name, dtype, (rows, 4096), (4096, 4096)))
    return made


def product(name: str, dtype: str, left: tuple[int, ...], right: tuple[int, ...]) -> Case:
    scale = left[-1] ** -0.5
    operands = (Operand(left, dtype), Operand(right, dtype, scale=scale))
    size = math.prod(left) * right[-1]
    result = math.prod(left[:-1]) * right[-1] * ITEMSIZE[dtype]
    return Case(
        name,
        operands,
        lambda np, a, b: a @ b,
        torch=lambda torch, a, b: a @ b,
        flops=2 * size,
        bytes=sum(o.nbytes for o in operands) + result,
        unit="f32" if dtype == "f32" else "half",
        tolerance=1e-4 if dtype == "f32" else 2e-2,
    )


def attention_cases() -> list[Case]:
    made = []
    shape, flops = (16, 16, 2048, 64), 4 * 16 * 16 * 2048 * 2048 * 64
    for dtype in ("f32", "bf16"):
        for causal in (False, True):

            def graphc(gc, q, k, v, causal=causal):
                return gc.attention(q, k, v, causal=causal)

            def torch(torch, q, k, v, causal=causal):
                attend = torch.nn.functional.scaled_dot_product_attention
                return attend(q, k, v, is_causal=causal)

            def jax(jax, q, k, v, causal=causal):
                turned = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
                made = jax.nn.dot_product_attention(*turned, is_causal=causal)
                return made.transpose(0, 2, 1, 3)

            operand = Operand(shape, dtype)
            made.append(
                Case(
                    f"attention-{dtype}" + "-causal" * causal,
                    (operand, Operand(shape, dtype, scale=0.9), Operand(shape, dtype, scale=0.8)),
                    graphc=graphc,
                    torch=torch,
                    jax=jax,
                    flops=flops / (2 if causal else 1),
                    bytes=4 * operand.nbytes,
                    unit="f32" if dtype == "f32" else "half",
                    tolerance=1e-4 if dtype == "f32" else 2e-2,
                )
            )
    return made


def convolution_cases() -> list[Case]:
    made = []
    shapes = (  # images of N, C, H, W; kernels of O, C / groups, kh, kw; stride, padding, groups
        ("3x3-64", (32, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
        ("1x1-256", (32, 256, 56, 56), (64, 256, 1, 1), 1, 0, 1),
        ("7x7-stride-2", (32, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1),
        ("depthwise-3x3", (32, 256, 56, 56), (256, 1, 3, 3), 1, 1, 256),
    )
    for name, image, kernel, stride, padding, groups in shapes:
        for dtype in ("f32", "bf16"):

            def graphc(gc, x, w, s=stride, p=padding, g=groups):
                return gc.conv(x, w, stride=s, padding=p, groups=g)

            def torch(torch, x, w, s=stride, p=padding, g=groups):
                return torch.nn.functional.conv2d(x, w, stride=s, padding=p, groups=g)

            def jax(jax, x, w, s=stride, p=padding, g=groups):
                return jax.lax.conv_general_dilated(
                    x, w, (s, s), [(p, p)] * 2, feature_group_count=g
                )

            depth = math.prod(kernel[1:])
            pixels = image[0] * (image[2] // stride) * (image[3] // stride)
            operands = Operand(image, dtype), Operand(kernel, dtype, scale=depth**-0.5)
            result = pixels * kernel[0] * ITEMSIZE[dtype]
            made.append(
                Case(
                    f"conv-{dtype}-{name}",
                    operands,
                    graphc=graphc,
                    torch=torch,
                    jax=jax,
                    flops=2 * pixels * kernel[0] * depth,
                    bytes=sum(o.nbytes for o in operands) + result,
                    unit="f32" if dtype == "f32" else "half",
                    tolerance=1e-4 if dtype == "f32" else 2e-2,
                )
            )
    return made


# ------------------------------------------------------------------------------- whole programs

BATCH, LAYERS = 4096, (1024, 4096, 4096, 1024)
TOKENS, MODEL, HEADS = (8, 512), 768, 12
STEPS, STATES = 1000, (64, 256)


def mlp_loss(gc, x, y, *weights):
    h = x
    for w in weights[:-1]:
        h = gc.maximum(h @ w, 0)
    difference = h @ weights[-1] - y
    return (difference * difference).mean()


def torch_mlp_loss(torch, x, y, *weights):
    h = x
    for w in weights[:-1]:
        h = torch.relu(h @ w)
    return torch.nn.functional.mse_loss(h @ weights[-1], y)


def block_loss(gc, x, y, wqkv, wo, w1, w2):
    """A transformer block without scales and shifts."""
    n, length, width = x.shape
    projected = (gc.layer_norm(x, axis=-1) @ wqkv).reshape(n, length, 3, HEADS, width // HEADS)
    q, k, v = (projected[:, :, j].transpose(0, 2, 1, 3) for j in range(3))
    mixed = gc.attention(q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(n, length, width)
    x = x + mixed @ wo
    x = x + gc.gelu(gc.layer_norm(x, axis=-1) @ w1, tanh=True) @ w2
    return ((x - y) * (x - y)).mean()


def torch_block_loss(torch, x, y, wqkv, wo, w1, w2):
    f = torch.nn.functional
    n, length, width = x.shape
    norm = (width,)
    projected = (f.layer_norm(x, norm) @ wqkv).view(n, length, 3, HEADS, width // HEADS)
    q, k, v = projected.permute(2, 0, 3, 1, 4)
    mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + mixed.transpose(1, 2).reshape(n, length, width) @ wo
    x = x + f.gelu(f.layer_norm(x, norm) @ w1, approximate="tanh") @ w2
    return f.mse_loss(x, y)


def jax_block_loss(jax, x, y, wqkv, wo, w1, w2):
    n, length, width = x.shape

    def norm(x):
        return jax.nn.standardize(x, epsilon=1e-5)

    projected = (norm(x) @ wqkv).reshape(n, length, 3, HEADS, width // HEADS)
    q, k, v = (projected[:, :, j] for j in range(3))
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(n, length, width)
    x = x + mixed @ wo
    x = x + jax.nn.gelu(norm(x) @ w1) @ w2
    return ((x - y) ** 2).mean()


def trained(name: str, operands: tuple[Operand, ...], flops: float, losses: Any) -> Case:
    """A step of gradient descent by all operands but the first two; the result is the loss."""
    own, in_torch, in_jax = losses
    wrt = tuple(range(2, len(operands)))

    def graphc(gc, *arrays):
        value, gradients = gc.value_and_grad(lambda *a: own(gc, *a), wrt=wrt)(*arrays)
        pairs = zip(arrays[2:], gradients, strict=True)
        return value, *(w - 0.01 * g for w, g in pairs)

    def torch_steps(torch, *tensors):
        weights = [w.clone().requires_grad_() for w in tensors[2:]]
        optimiser = torch.optim.SGD(weights, 0.01, fused=True)

        def step():
            with torch.enable_grad():
                optimiser.zero_grad()
                loss = in_torch(torch, *tensors[:2], *weights)
                loss.backward()
                optimiser.step()
            return loss.detach()

        return step

    def jax(jax, *arrays):
        value, gradients = jax.value_and_grad(lambda *a: in_jax(jax, *a), wrt)(*arrays)
        pairs = zip(arrays[2:], gradients, strict=True)
        return value, *(w - 0.01 * g for w, g in pairs)

    bytes_moved = 2 * sum(o.nbytes for o in operands[2:])
    return Case(
        name,
        operands,
        graphc=graphc,
        steps=torch_steps,
        jax=jax,
        flops=flops,
        bytes=bytes_moved,
        tolerance=1e-3,
    )


def lstm(gc, x, wx, wh):
    def step(state, x):
        h, c = state
        gates = x @ wx + h @ wh
        i, f, g, o = (gates[:, k * width : (k + 1) * width] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return (h, c), h

    width = wh.shape[0]
    start = np.zeros((x.shape[1], width), np.float32)
    return gc.scan(step, (start, start), x)[1]


def jax_lstm(jax, x, wx, wh):
    np = jax.numpy

    def step(state, x):
        h, c = state
        i, f, g, o = np.split(x @ wx + h @ wh, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * np.tanh(g)
        h = jax.nn.sigmoid(o) * np.tanh(c)
        return (h, c), h

    start = np.zeros((x.shape[1], wh.shape[0]), np.float32)
    return jax.lax.scan(step, (start, start), x)[1]


def torch_lstm(torch, x, wx, wh):
    start = torch.zeros(1, x.shape[1], wh.shape[0])
    zero = torch.zeros(wx.shape[1])
    weights = [wx.t().contiguous(), wh.t().contiguous(), zero, zero]
    return lambda: torch.lstm(x, (start, start), weights, True, 1, 0.0, False, False, False)[0]


def loop(gc, x):
    """A loop whose end the data decide, here after 1,000 rounds."""

    def more(state):
        return state[1].max() < 1000

    return gc.while_loop(more, lambda s: (np.cos(s[0]), s[1] + 1), (x, np.zeros((2,), np.float32)))[
        0
    ]


def jax_loop(jax, x):
    np = jax.numpy
    start = (x, np.zeros((2,), np.float32))
    return jax.lax.while_loop(
        lambda s: s[1].max() < 1000, lambda s: (np.cos(s[0]), s[1] + 1), start
    )[0]


def torch_loop(torch, x):
    rounds = torch.zeros(2)
    while rounds.max() < 1000:
        x, rounds = torch.cos(x), rounds + 1
    return x


def program_cases() -> list[Case]:
    tokens, inner = math.prod(TOKENS), 4 * MODEL
    multiplied = sum(a * b for a, b in pairwise(LAYERS))
    sides = ((MODEL, 3 * MODEL), (MODEL, MODEL), (MODEL, inner), (inner, MODEL))
    block = sum(math.prod(s) for s in sides) + TOKENS[1] * MODEL
    return [
        trained(
            "train-mlp",
            (
                f32(BATCH, LAYERS[0]),
                f32(BATCH, LAYERS[-1], scale=0.5),
                *(f32(a, b, scale=a**-0.5) for a, b in pairwise(LAYERS)),
            ),
            6 * BATCH * multiplied,
            (mlp_loss, torch_mlp_loss, lambda jax, *a: mlp_loss(jax.numpy, *a)),
        ),
        trained(
            "train-transformer",
            (
                f32(*TOKENS, MODEL),
                f32(*TOKENS, MODEL, scale=0.5),
                *(f32(*s, scale=s[0] ** -0.5) for s in sides),
            ),
            6 * tokens * block,
            (block_loss, torch_block_loss, jax_block_loss),
        ),
        Case(
            "scan-lstm-1000",
            (f32(STEPS, *STATES), f32(256, 1024, scale=1 / 16), f32(256, 1024, scale=1 / 15)),
            graphc=lstm,
            steps=torch_lstm,
            jax=jax_lstm,
            flops=2 * STEPS * STATES[0] * 512 * 1024,
            bytes=8 * STEPS * math.prod(STATES),
        ),
        Case(
            "while-1000",
            (f32(1 << 16),),
            graphc=loop,
            torch=torch_loop,
            jax=jax_loop,
            bytes=8 << 16,
        ),
    ]


CASES = {
    case.name: case
    for case in (
        *memory_cases(),
        *product_cases(),
        *attention_cases(),
        *convolution_cases(),
        *program_cases(),
    )
}


def SMALL() -> dict[str, Case]:
    """The cases that a CPU is timed with."""
    from benchmarks import cases, in_torch, peers
    from benchmarks.worker import fresh_arguments

    def small(old: cases.Case) -> Case:
        kind = peers.kind(old)

        def graphc(gc, *arguments):
            return (old.native(gc) if old.native else old.function)(*arguments)

        def torch(torch, *arguments):
            return in_torch.FUNCTIONS[kind](*arguments)

        def jax(jax, *arguments):
            from benchmarks import in_jax

            return in_jax.FUNCTIONS[kind](*arguments)

        return Case(
            old.name,
            (),
            array=lambda np, *arguments: old.function(*arguments),
            graphc=graphc,
            torch=torch,
            jax=jax,
            flops=old.flops,
            bytes=old.bytes,
            tolerance=10 * old.tolerance,
            compiled=True,
            nested=lambda: fresh_arguments(old),
        )

    largest = cases.gemm_case(2048), cases.gemm_case(4096)
    return {case.name: small(case) for case in (*cases.CASES.values(), *largest)}
