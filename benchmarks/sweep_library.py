"""The other half of the sweep's table: linear algebra, sorts, random numbers, signals, networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.sweep_cases import Function, Swept, arrays, integers, made, swept

# -- linear algebra -------------------------------------------------------------------------------


def product(name: str, kind: str, left: Any, right: Any, flops: float, **options: Any) -> Swept:
    return swept(
        f"product/{name}-{kind}",
        options.pop("function", lambda xp, x, y: x @ y),
        arrays(kind, left, right),
        onnx=options.pop("onnx", "MatMul"),
        flops=flops,
        tolerance={"f64": 1e-10, "f32": 1e-4, "bf16": 5e-2, "c64": 1e-4}[kind],
        **options,
    )


def products() -> Iterator[Swept]:
    for n in (4, 8, 16, 32, 64, 128, 256, 400, 1024):
        yield product(f"square-{n}", "f32", (n, n), (n, n), 2.0 * n**3)
    for n in (8, 64, 256, 400):
        yield product(f"square-{n}", "f64", (n, n), (n, n), 2.0 * n**3)
    yield product("square-256", "c64", (256, 256), (256, 256), 8.0 * 256**3, onnx=None)
    yield product("square-256", "bf16", (256, 256), (256, 256), 2.0 * 256**3, onnx=None)
    turned: dict[str, Function] = {
        "left-transposed": lambda xp, x, y: x.T @ y,
        "right-transposed": lambda xp, x, y: x @ y.T,
    }
    for name, function in turned.items():
        for n in (64, 512):
            options = {"function": function, "onnx": None}
            yield product(f"{name}-{n}", "f32", (n, n), (n, n), 2.0 * n**3, **options)
    for m, k, n in (
        (1, 1024, 1024),
        (8, 1024, 1024),
        (32, 768, 3072),
        (512, 64, 512),
        (512, 512, 64),
        (100_000, 4, 4),
        (100_000, 8, 8),
        (100_000, 3, 16),
        (4, 100_000, 4),
        (64, 10_000, 64),
    ):
        yield product(f"{m}x{k}x{n}", "f32", (m, k), (k, n), 2.0 * m * k * n)
    for n in (64, 1024, 4096):
        yield product(f"gemv-{n}", "f32", (n, n), (n,), 2.0 * n * n)
        yield product(
            f"gemv-transposed-{n}",
            "f32",
            (n, n),
            (n,),
            2.0 * n * n,
            function=lambda xp, x, y: x.T @ y,
            onnx=None,
        )
    yield product("gemv-1024", "f64", (1024, 1024), (1024,), 2.0 * 1024**2)
    for n in (1000, 1_000_000):
        yield product(f"dot-{n}", "f32", (n,), (n,), 2.0 * n)
    yield product(
        "outer-1024",
        "f32",
        (1024,),
        (1024,),
        1024.0**2,
        function=lambda xp, x, y: xp.outer(x, y),
        onnx=None,
    )
    for count, n in ((1000, 4), (1000, 8), (256, 32), (64, 128)):
        shape = (count, n, n)
        yield product(f"batch-{count}x{n}", "f32", shape, shape, 2.0 * count * n**3)
    yield product(
        "batch-vector-1000x8",
        "f32",
        (1000, 8, 8),
        (1000, 8),
        2.0 * 64_000,
        function=lambda xp, x, y: (x @ y[..., None])[..., 0],
        onnx=None,
    )
    yield product(
        "einsum-bhqd-bhkd",
        "f32",
        (4, 8, 128, 64),
        (4, 8, 128, 64),
        2.0 * 32 * 128 * 128 * 64,
        function=lambda xp, x, y: xp.einsum("bhqd,bhkd->bhqk", x, y),
        onnx=None,
    )


def distances(xp: Any, x: Any, y: Any) -> Any:
    return xp.sqrt(xp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1))


def decompositions() -> Iterator[Swept]:
    def stacked(count: int, n: int, kind: str, positive: bool = False) -> Any:
        def matrices(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
            x = rng.standard_normal((count, n, n) if count > 1 else (n, n))
            x = x @ x.swapaxes(-1, -2) / n if positive else x / n**0.5
            return ((x + 2 * np.eye(n)).astype(f"f{int(kind[1:]) // 8}"),)

        return matrices

    functions: dict[str, tuple[Function, bool]] = {
        "inv": (lambda xp, x: xp.linalg.inv(x), False),
        "det": (lambda xp, x: xp.linalg.det(x), False),
        "solve": (lambda xp, x: xp.linalg.solve(x, x[..., :2] + 1), False),
        "cholesky": (lambda xp, x: xp.linalg.cholesky(x), True),
        "eigvalsh": (lambda xp, x: xp.linalg.eigvalsh(x), True),
        "svdvals": (lambda xp, x: xp.linalg.svdvals(x), False),
        "qr": (lambda xp, x: xp.abs(xp.linalg.qr(x)[1]), False),
    }
    for name, (function, positive) in functions.items():
        for count, n, kind in ((1000, 4, "f32"), (1, 64, "f32"), (1, 256, "f64")):
            yield swept(
                f"linalg/{name}-{count}x{n}-{kind}",
                function,
                stacked(count, n, kind, positive),
                flops=2.0 * count * n**3 / 3,
                tolerance=1e-2 if kind == "f32" else 1e-7,
            )
    for rows, width in ((500, 16), (1000, 64)):
        yield swept(
            f"linalg/distances-{rows}x{width}-f32",
            distances,
            arrays("f32", (rows, width), (rows, width)),
            flops=3.0 * rows * rows * width,
            torch=lambda torch: torch.cdist,
            tolerance=1e-4,
            numba="distances",
        )


# -- order ----------------------------------------------------------------------------------------


def sorts() -> Iterator[Swept]:
    shapes = {"row-1000": (1000,), "row-100000": (100_000,), "rows-1000x100": (1000, 100)}
    shapes |= {"row-1000000": (1_000_000,), "columns-1000x100": (100, 1000)}
    for name, shape in shapes.items():
        axis = 0 if "columns" in name else -1
        for what in ("sort", "argsort"):
            options = {"kind": "stable"} if what == "argsort" else {}
            yield swept(
                f"sort/{what}-{name}-f32",
                lambda xp, x, w=what, a=axis, o=options: getattr(xp, w)(x, axis=a, **o),
                arrays("f32", shape),
                jax=lambda jax, w=what, a=axis: lambda x: getattr(jax.numpy, w)(x, axis=a),
            )
    yield swept("sort/sort-row-100000-i32", lambda xp, x: xp.sort(x), integers(1 << 30, (100_000,)))
    yield swept("sort/sort-row-100000-f64", lambda xp, x: xp.sort(x), arrays("f64", (100_000,)))
    for rows, length, k in ((1, 100_000, 10), (256, 1000, 10), (32, 30_000, 50)):
        yield swept(
            f"sort/topk-{rows}x{length}-{k}-f32",
            lambda xp, x, k=k: xp.flip(xp.sort(x, axis=-1)[:, -k:], -1),
            arrays("f32", (rows, length)),
            native=lambda gc, k=k: lambda x: gc.topk(x, k)[0],
            jax=lambda jax, k=k: lambda x: jax.lax.top_k(x, k)[0],
            torch=lambda torch, k=k: lambda x: torch.topk(x, k)[0],
            onnx=lambda net, x, k=k: net.op("TopK", x, net.constant([k], np.int64), outputs=2)[0],
        )
    for table, count in ((1000, 100_000), (100_000, 100_000)):
        yield swept(
            f"search/searchsorted-{table}-{count}-f32",
            lambda xp, x, y: xp.searchsorted(x, y),
            lambda rng, t=table, c=count: (np.sort(made("f32", rng, (t,))), made("f32", rng, (c,))),
        )
    for name, function in {
        "median": lambda xp, x: xp.median(x),
        "quantile": lambda xp, x: xp.quantile(x, 0.9),
        "unique": lambda xp, x: xp.unique(xp.round(x * 100)),
        "nonzero": lambda xp, x: xp.nonzero(x > 1.0)[0],
    }.items():
        yield swept(
            f"search/{name}-100000-f32",
            function,
            arrays("f32", (99_999,)),
            without=("jax",) if name in ("unique", "nonzero") else (),
        )


# -- random numbers -------------------------------------------------------------------------------

DRAWS: dict[str, tuple[Any, Any, Any, Any]] = {  # NumPy's, graphc's, JAX's, PyTorch's
    "uniform": (
        lambda g, n: g.random(n, np.float32),
        lambda r, k, n: r.uniform(k, n),
        lambda r, k, n: r.uniform(k, n),
        lambda torch, n: torch.rand(n),
    ),
    "normal": (
        lambda g, n: g.standard_normal(n, np.float32),
        lambda r, k, n: r.normal(k, n),
        lambda r, k, n: r.normal(k, n),
        lambda torch, n: torch.randn(n),
    ),
    "randint": (
        lambda g, n: g.integers(0, 1000, n, np.int32),
        lambda r, k, n: r.randint(k, n, 0, 1000),
        lambda r, k, n: r.randint(k, n, 0, 1000),
        lambda torch, n: torch.randint(0, 1000, n, dtype=torch.int32),
    ),
    "bernoulli": (
        lambda g, n: g.random(n, np.float32) < 0.3,
        lambda r, k, n: r.bernoulli(k, 0.3, n),
        lambda r, k, n: r.bernoulli(k, 0.3, n),
        lambda torch, n: torch.empty(n, dtype=torch.bool).bernoulli_(0.3),
    ),
}


def random_numbers() -> Iterator[Swept]:
    for name, (plain, own, jax, torch) in DRAWS.items():
        for shape in ((256, 256), (4096, 1024)):
            yield swept(
                f"random/{name}-{shape[0]}x{shape[1]}",
                lambda xp, seed, f=plain, s=shape: f(np.random.Generator(np.random.SFC64(0)), s),
                lambda rng: (np.array(7, np.int64),),
                native=lambda gc, f=own, s=shape: lambda seed: f(gc.random, gc.random.key(seed), s),
                jax=lambda jax, f=jax, s=shape: lambda seed: f(jax.random, jax.random.key(seed), s),
                torch=lambda torch, f=torch, s=shape: lambda seed: f(torch, s),
                judge="moments",
            )
    yield swept(
        "random/permutation-100000",
        lambda xp, seed: np.random.Generator(np.random.SFC64(0)).permutation(100_000),
        lambda rng: (np.array(7, np.int64),),
        native=lambda gc: lambda seed: gc.random.permutation(gc.random.key(seed), 100_000),
        jax=lambda jax: lambda seed: jax.random.permutation(jax.random.key(seed), 100_000),
        torch=lambda torch: lambda seed: torch.randperm(100_000),
        judge="moments",
    )


# -- signals and images ---------------------------------------------------------------------------


def transforms() -> Iterator[Swept]:
    def flops(count: int, n: int) -> float:
        return 5.0 * count * n * np.log2(n)

    for count, n in ((1, 64), (1, 1024), (1, 1000), (1, 65_536), (1000, 64), (256, 1024)):
        for kind in ("c64", "c128"):
            yield swept(
                f"fft/fft-{count}x{n}-{kind}",
                lambda xp, x: xp.fft.fft(x),
                arrays(kind, (count, n)),
                flops=flops(count, n),
                tolerance=1e-5,
            )
    for count, n in ((1, 1024), (1000, 64), (16, 16_384)):
        yield swept(
            f"fft/rfft-{count}x{n}-f32",
            lambda xp, x: xp.fft.rfft(x),
            arrays("f32", (count, n)),
            flops=flops(count, n) / 2,
            tolerance=1e-5,
        )
    for n in (64, 512):
        yield swept(
            f"fft/fft2-{n}x{n}-c64",
            lambda xp, x: xp.fft.fft2(x),
            arrays("c64", (n, n)),
            flops=flops(2 * n, n),
            tolerance=1e-5,
        )


def convolution(name: str, x: Any, w: Any, stride: int = 1, pad: int = 0, groups: int = 1) -> Swept:
    spatial = len(x) - 2
    out = [(n + 2 * pad - k) // stride + 1 for n, k in zip(x[2:], w[2:])]
    named = {"strides": [stride] * spatial, "pads": [pad] * 2 * spatial, "group": groups}

    def jax_conv(jax: Any) -> Function:
        return lambda x, w: jax.lax.conv_general_dilated(
            x, w, (stride,) * spatial, [(pad, pad)] * spatial, feature_group_count=groups
        )

    return swept(
        f"image/{name}-f32",
        None,
        lambda rng: (made("f32", rng, x), made("f32", rng, w) / np.float32(np.prod(w[1:])) ** 0.5),
        native=lambda gc: lambda x, w: gc.conv(x, w, stride, pad, groups=groups),
        jax=jax_conv,
        torch=lambda torch: (
            lambda x, w: getattr(torch.nn.functional, f"conv{spatial}d")(
                x, w, None, stride, pad, 1, groups
            )
        ),
        onnx=lambda net, x, w: net.op("Conv", x, w, **named),
        flops=2.0 * x[0] * np.prod(out) * np.prod(w),
        tolerance=1e-4,
    )


def pooling(kind: str, shape: Any, window: int, stride: int) -> Swept:
    sizes = {"kernel_shape": [window] * 2, "strides": [stride] * 2}

    def jax_pool(jax: Any) -> Function:
        add, init = (jax.lax.max, -np.inf) if kind == "max" else (jax.lax.add, 0.0)
        share = 1.0 if kind == "max" else 1 / window**2
        extents = (1, 1, window, window), (1, 1, stride, stride)
        return lambda x: jax.lax.reduce_window(x, init, add, *extents, "VALID") * share

    return swept(
        f"image/{kind}-pool-{window}-{stride}-f32",
        None,
        arrays("f32", shape),
        native=lambda gc: lambda x: getattr(gc, f"{kind}_pool")(x, window, stride),
        jax=jax_pool,
        torch=lambda torch: (
            lambda x: getattr(torch.nn.functional, f"{kind}_pool2d")(x, window, stride)
        ),
        onnx=lambda net, x: net.op("MaxPool" if kind == "max" else "AveragePool", x, **sizes),
        tolerance=1e-5,
    )


def sobel(xp: Any, x: Any) -> Any:
    across = x[:, 2:] - x[:, :-2]
    down = x[2:] - x[:-2]
    across = across[:-2] + 2 * across[1:-1] + across[2:]
    down = down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]
    return xp.sqrt(across * across + down * down)


def images() -> Iterator[Swept]:
    yield convolution("conv-3x3-64", (1, 64, 56, 56), (64, 64, 3, 3), 1, 1)
    yield convolution("conv-3x3-64-batch", (8, 64, 56, 56), (64, 64, 3, 3), 1, 1)
    yield convolution("conv-3x3-256", (1, 256, 14, 14), (256, 256, 3, 3), 1, 1)
    yield convolution("conv-3x3-stride-2", (1, 64, 56, 56), (128, 64, 3, 3), 2, 1)
    yield convolution("conv-1x1-256", (1, 256, 28, 28), (128, 256, 1, 1))
    yield convolution("conv-5x5-gray", (1, 1, 512, 512), (8, 1, 5, 5), 1, 2)
    yield convolution("conv-7x7-stem", (1, 3, 224, 224), (64, 3, 7, 7), 2, 3)
    yield convolution("conv-4x4-digits", (32, 1, 28, 28), (16, 1, 3, 3), 1, 1)
    yield convolution("conv-depthwise", (1, 96, 56, 56), (96, 1, 3, 3), 1, 1, 96)
    yield convolution("conv-1d-9", (8, 32, 1024), (32, 32, 9), 1, 4)
    yield convolution("conv-1d-audio", (1, 1, 16_000), (64, 1, 25), 4, 0)
    yield convolution("conv-3d", (1, 8, 16, 32, 32), (16, 8, 3, 3, 3), 1, 1)
    yield pooling("max", (8, 64, 56, 56), 2, 2)
    yield pooling("max", (1, 64, 112, 112), 3, 2)
    yield pooling("avg", (8, 64, 56, 56), 2, 2)
    yield swept("image/sobel-512-f32", sobel, arrays("f32", (512, 512)), fused=True)
    yield swept(
        "image/grey-1024-f32",
        lambda xp, x: 0.299 * x[..., 0] + 0.587 * x[..., 1] + 0.114 * x[..., 2],
        arrays("f32", (1024, 1024, 3)),
    )
    yield swept(
        "image/resize-2x-f32",
        None,
        arrays("f32", (1, 64, 56, 56)),
        native=lambda gc: lambda x: gc.interpolate(x, (112, 112)),
        jax=lambda jax: lambda x: jax.image.resize(x, (1, 64, 112, 112), "bilinear"),
        torch=lambda torch: (
            lambda x: torch.nn.functional.interpolate(x, (112, 112), mode="bilinear")
        ),
    )
    yield swept(
        "image/convolve-10000-100-f32",
        lambda xp, x, y: xp.convolve(x, y, "valid"),
        arrays("f32", (10_000,), (101,)),
        flops=2.0 * 10_000 * 101,
        torch=lambda torch: (
            lambda x, y: torch.nn.functional.conv1d(x[None, None], y.flip(0)[None, None])[0, 0]
        ),
        tolerance=1e-4,
    )


# -- layers and small models ----------------------------------------------------------------------


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def layer_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5) * scale + shift


def rms_norm(xp: Any, x: Any, scale: Any) -> Any:
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale


def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    return softmax(xp, q @ xp.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5) @ v


def layers() -> Iterator[Swept]:
    for rows, width in ((32, 10), (128, 1000), (4096, 1024)):
        shape = f"{rows}x{width}-f32"
        yield swept(
            f"layer/softmax-{shape}",
            softmax,
            arrays("f32", (rows, width)),
            onnx="Softmax",
            torch=lambda torch: lambda x: torch.softmax(x, -1),
            fused=True,
            jax=lambda jax: jax.nn.softmax,
            flops=8.0 * rows * width,
        )
        yield swept(
            f"layer/layer-norm-{shape}",
            layer_norm,
            arrays("f32", (rows, width), (width,), (width,)),
            tolerance=1e-4,
            onnx=lambda net, x, s, t: net.op("LayerNormalization", x, s, t, axis=-1, epsilon=1e-5),
            torch=lambda torch: lambda x, s, t: torch.nn.functional.layer_norm(x, s.shape, s, t),
            fused=True,
            flops=8.0 * rows * width,
        )
        yield swept(
            f"layer/rms-norm-{shape}",
            rms_norm,
            arrays("f32", (rows, width), (width,)),
            torch=lambda torch: lambda x, s: torch.nn.functional.rms_norm(x, s.shape, s, 1e-5),
            fused=True,
            flops=4.0 * rows * width,
            tolerance=1e-4,
        )
        yield swept(
            f"layer/gelu-erf-{shape}",
            None,
            arrays("f32", (rows, width)),
            onnx="Gelu",
            native=lambda gc: gc.gelu,
            jax=lambda jax: lambda x: jax.nn.gelu(x, approximate=False),
            torch=lambda torch: torch.nn.functional.gelu,
            fused=True,
            flops=20.0 * rows * width,
        )
    for count, heads, length, width in ((1, 4, 64, 32), (4, 8, 256, 64), (1, 8, 1024, 64)):
        yield swept(
            f"layer/attention-{count}x{heads}x{length}x{width}-f32",
            attention,
            arrays("f32", *[(count, heads, length, width)] * 3),
            jax=lambda jax: lambda q, k, v: attention(jax.numpy, q, k, v),
            torch=lambda torch: torch.nn.functional.scaled_dot_product_attention,
            flops=4.0 * count * heads * length * length * width,
            tolerance=1e-4,
        )
    yield swept(
        "layer/cross-entropy-128x1000-f32",
        lambda xp, x, y: xp.mean(
            xp.log(xp.sum(xp.exp(x), axis=1)) - xp.take_along_axis(x, y[:, None], 1)[:, 0]
        ),
        lambda rng: (made("f32", rng, (128, 1000)), rng.integers(0, 1000, 128)),
        torch=lambda torch: torch.nn.functional.cross_entropy,
    )
    yield swept(
        "layer/batch-norm-8x64x56x56-f32",
        lambda xp, x, m, v: (x - m[:, None, None]) / xp.sqrt(v * v + 1e-5)[:, None, None],
        arrays("f32", (8, 64, 56, 56), (64,), (64,)),
        fused=True,
        tolerance=1e-4,
    )


def models() -> Iterator[Swept]:
    """The programs of `make bench`, which every peer has in its own words."""
    for name in ("call", "tree", "mlp-1", "mlp-128", "transformer", "lstm", "minilm"):
        case = cases.CASES[name]
        yield Swept(
            f"model/{name}",
            case.function,
            case.arguments,
            case.flops,
            case.bytes,
            max(case.tolerance, 1e-4),
            case.native,
            fused=True,
        )
