"""Training steps of whole networks beside torch, torch.compile and JAX.

    python -m benchmarks.training_networks                       one thread and two, all networks
    python -m benchmarks.training_networks --network unet --threads 1 --peers jax,torch

ResNet-18 on images of 32 x 32, a GPT of 6 layers, an LSTM language model of two layers, and a
U-Net.  Each is written once, over a few words (`conv`, `attention`, `lstm` ...) that every library
says in its own best way.  A step is the loss, its gradients and an SGD update in place.  All take
turns in one process; a figure is the median of its kind, on one thread of what the process takes of
a processor.  Losses and parameters after a few steps are compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import graphc as gc
from benchmarks.worker import limit_threads

F32 = np.float32
# Rounding decides on which side of a ReLU an element near 0 lies.  Larger steps magnify that: with
# 0.01 the third loss of ResNet-18 is up to 0.5 % from that in f64 in torch and JAX, 0.7 % here.
RATE = 0.001
STEPS = 3  # after which losses are compared
TOLERANCE = 2e-3
Tree = dict[str, Any]
Loss = Callable[[Tree, Any, Any], Any]
Step = Callable[[], float]  # makes one, and gives its loss

# -------------------------------------------------------------------- the networks, in words `w`


def residual_block(w: Any, p: Tree, name: str, x: Any, stride: int) -> Any:
    def normal(h: Any, n: int) -> Any:
        return w.batch_norm(h, p[f"{name}.scale{n}"], p[f"{name}.shift{n}"])

    h = w.relu(normal(w.conv(x, p[f"{name}.w1"], stride), 1))
    h = normal(w.conv(h, p[f"{name}.w2"], 1), 2)
    if f"{name}.w3" in p:
        x = normal(w.conv(x, p[f"{name}.w3"], stride), 3)
    return w.relu(h + x)


def resnet(w: Any) -> Loss:
    def loss(p: Tree, x: Any, labels: Any) -> Any:
        h = w.relu(w.batch_norm(w.conv(x, p["stem"], 1), p["scale"], p["shift"]))
        for level in range(4):
            for block in range(2):
                stride = 2 if level and not block else 1
                h = residual_block(w, p, f"{level}.{block}", h, stride)
        return w.cross_entropy(h.mean((2, 3)) @ p["head"] + p["bias"], labels)

    return loss


def resnet_arguments(draw: Any, ids: Any) -> tuple[Tree, Any, Any]:
    p = {"stem": draw(64, 3, 3, 3), "scale": 1 + draw(64), "shift": draw(64)}
    inputs = 64
    for level, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name = f"{level}.{block}"
            p |= {f"{name}.w1": draw(width, inputs, 3, 3), f"{name}.w2": draw(width, width, 3, 3)}
            if width != inputs:
                p[f"{name}.w3"] = draw(width, inputs, 1, 1)
            for n in range(1, 3 + (width != inputs)):
                p |= {f"{name}.scale{n}": 1 + draw(width), f"{name}.shift{n}": draw(width)}
            inputs = width
    p |= {"head": draw(512, 10), "bias": draw(10)}
    return p, draw(8, 3, 32, 32) * F32(20), ids(10, 8)


LAYERS, WIDTH, HEADS, WORDS, LENGTH = 6, 384, 6, 1000, 128


def gpt(w: Any) -> Loss:
    def layer(p: Tree, name: str, x: Any) -> Any:
        batch, length, width = x.shape

        def dense(h: Any, kind: str) -> Any:
            return h @ p[f"{name}.{kind}"] + p[f"{name}.{kind}.bias"]

        def normal(h: Any, n: int) -> Any:
            return w.layer_norm(h, p[f"{name}.scale{n}"], p[f"{name}.shift{n}"])

        parts = w.split(dense(normal(x, 1), "qkv"), 3)
        heads = [h.reshape(batch, length, HEADS, width // HEADS).swapaxes(1, 2) for h in parts]
        made = w.attention(*heads).swapaxes(1, 2).reshape(batch, length, width)
        x = x + dense(made, "out")
        return x + dense(w.gelu(dense(normal(x, 2), "up")), "down")

    def loss(p: Tree, ids: Any, labels: Any) -> Any:
        x = p["words"][ids] + p["places"]
        for n in range(LAYERS):
            x = layer(p, f"{n}", x)
        x = w.layer_norm(x, p["scale"], p["shift"])
        return w.cross_entropy((x @ p["head"]).reshape(-1, WORDS), labels.reshape(-1))

    return loss


def gpt_arguments(draw: Any, ids: Any) -> tuple[Tree, Any, Any]:
    p = {"words": draw(WORDS, WIDTH), "places": draw(LENGTH, WIDTH), "head": draw(WIDTH, WORDS)}
    p |= {"scale": 1 + draw(WIDTH), "shift": draw(WIDTH)}
    for n in range(LAYERS):
        for kind, inputs, outputs in (
            ("qkv", WIDTH, 3 * WIDTH),
            ("out", WIDTH, WIDTH),
            ("up", WIDTH, 4 * WIDTH),
            ("down", 4 * WIDTH, WIDTH),
        ):
            p |= {f"{n}.{kind}": draw(inputs, outputs), f"{n}.{kind}.bias": draw(outputs)}
        for k in (1, 2):
            p |= {f"{n}.scale{k}": 1 + draw(WIDTH), f"{n}.shift{k}": draw(WIDTH)}
    return p, ids(WORDS, 2, LENGTH), ids(WORDS, 2, LENGTH)


def language_model(w: Any) -> Loss:
    def loss(p: Tree, ids: Any, labels: Any) -> Any:
        h = p["words"][ids]
        for n in range(2):
            h = w.lstm(h, p[f"{n}.wx"], p[f"{n}.wh"], p[f"{n}.b"])
        words = p["words"].shape[0]
        return w.cross_entropy((h @ p["head"]).reshape(-1, words), labels.reshape(-1))

    return loss


def language_arguments(draw: Any, ids: Any) -> tuple[Tree, Any, Any]:
    words, width, length, batch = 256, 256, 48, 16
    p = {"words": draw(words, width), "head": draw(width, words)}
    for n in range(2):
        p |= {f"{n}.{k}": draw(width, 4 * width) for k in ("wx", "wh")}
        p[f"{n}.b"] = draw(4 * width)
    return p, ids(words, length, batch), ids(words, length, batch)


def unet(w: Any) -> Loss:
    def twice(p: Tree, name: str, x: Any) -> Any:
        for n in (1, 2):
            x = w.batch_norm(w.conv(x, p[f"{name}.w{n}"], 1), p[f"{name}.s{n}"], p[f"{name}.t{n}"])
            x = w.relu(x)
        return x

    def loss(p: Tree, x: Any, target: Any) -> Any:
        skips = []
        for level in range(3):
            x = twice(p, f"down{level}", x)
            skips.append(x)
            x = w.max_pool(x)
        x = twice(p, "low", x)
        for level in (2, 1, 0):
            x = twice(p, f"up{level}", w.concat([w.upsample(x), skips[level]]))
        difference = w.conv(x, p["last"], 1) - target
        return (difference * difference).mean()

    return loss


def unet_arguments(draw: Any, ids: Any) -> tuple[Tree, Any, Any]:
    p: Tree = {}

    def twice(name: str, inputs: int, width: int) -> None:
        for n, source in ((1, inputs), (2, width)):
            p[f"{name}.w{n}"] = draw(width, source, 3, 3)
            p.update({f"{name}.s{n}": 1 + draw(width), f"{name}.t{n}": draw(width)})

    inputs = 3
    for level in range(3):
        twice(f"down{level}", inputs, 16 << level)
        inputs = 16 << level
    twice("low", inputs, 128)
    inputs = 128
    for level in (2, 1, 0):
        twice(f"up{level}", inputs + (16 << level), 16 << level)
        inputs = 16 << level
    p["last"] = draw(1, inputs, 1, 1)
    return p, draw(4, 3, 64, 64) * F32(20), draw(4, 1, 64, 64)


NETWORKS = {
    "resnet18": (resnet, resnet_arguments),
    "gpt": (gpt, gpt_arguments),
    "lstm": (language_model, language_arguments),
    "unet": (unet, unet_arguments),
}

# ------------------------------------------------------------------------------ words of libraries


class Graphc:
    relu = staticmethod(lambda x: np.maximum(x, 0))
    gelu = staticmethod(gc.gelu)
    split = staticmethod(lambda x, count: np.split(x, count, axis=-1))
    attention = staticmethod(partial(gc.attention, causal=True))
    cross_entropy = staticmethod(gc.cross_entropy)
    max_pool = staticmethod(lambda x: gc.max_pool(x, 2))
    concat = staticmethod(lambda parts: np.concatenate(parts, axis=1))
    upsample = staticmethod(lambda x: np.repeat(np.repeat(x, 2, axis=2), 2, axis=3))

    @staticmethod
    def conv(x: Any, w: Any, stride: int) -> Any:
        return gc.conv(x, w, stride=stride, padding=w.shape[2] // 2)

    @staticmethod
    def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
        return gc.batch_norm(x, weight=scale, bias=shift)

    @staticmethod
    def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
        return gc.layer_norm(x, scale, shift)

    @staticmethod
    def lstm(x: Any, wx: Any, wh: Any, b: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            i, f, g, o = np.split(x @ wx + state[0] @ wh + b, 4, axis=-1)
            c = gc.sigmoid(f) * state[1] + gc.sigmoid(i) * np.tanh(g)
            h = gc.sigmoid(o) * np.tanh(c)
            return (h, c), h

        start = np.zeros((x.shape[1], wh.shape[0]), F32)
        return gc.scan(step, (start, start), x)[1]


def graphc(network: Callable[[Any], Loss], given: tuple[Any, ...], threads: int) -> Step:
    loss = network(Graphc)

    @gc.compile(donate=["p"], threads=threads, sizes="exact")
    def step(p: Tree, x: Any, y: Any) -> Any:
        value, gradients = gc.value_and_grad(loss)(p, x, y)
        return {k: v - F32(RATE) * gradients[k] for k, v in p.items()}, value

    kept = [{k: v.copy() for k, v in given[0].items()}]

    def once() -> float:
        kept[0], value = step(kept[0], *given[1:])
        return float(value)

    return once


def torch_words() -> Any:
    import torch
    from torch.nn import functional as f

    class Torch:
        relu, gelu = f.relu, staticmethod(partial(f.gelu, approximate="tanh"))
        split = staticmethod(lambda x, count: x.chunk(count, -1))
        attention = staticmethod(partial(f.scaled_dot_product_attention, is_causal=True))
        cross_entropy = staticmethod(f.cross_entropy)
        max_pool = staticmethod(lambda x: f.max_pool2d(x, 2))
        concat = staticmethod(lambda parts: torch.cat(parts, 1))
        upsample = staticmethod(lambda x: f.interpolate(x, scale_factor=2))

        @staticmethod
        def conv(x: Any, w: Any, stride: int) -> Any:
            return f.conv2d(x, w, stride=stride, padding=w.shape[2] // 2)

        @staticmethod
        def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
            return f.batch_norm(x, None, None, scale, shift, training=True)

        @staticmethod
        def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
            return f.layer_norm(x, x.shape[-1:], scale, shift)

        @staticmethod
        def lstm(x: Any, wx: Any, wh: Any, b: Any) -> Any:
            start = torch.zeros(1, x.shape[1], wh.shape[0])
            held = [wx.t(), wh.t(), b, torch.zeros_like(b)]
            return torch.lstm(x, (start, start), held, True, 1, 0.0, True, False, False)[0]

    return Torch


def torch(
    network: Callable[[Any], Loss], given: tuple[Any, ...], threads: int, compiled: bool = False
) -> Step:
    import torch

    torch.set_num_threads(threads)
    p, x, y = (
        {k: torch.from_numpy(v.copy()).requires_grad_() for k, v in given[0].items()},
        *(torch.from_numpy(v) for v in given[1:]),
    )
    loss = network(torch_words())
    loss = torch.compile(loss) if compiled else loss

    def once() -> float:
        value = loss(p, x, y)
        gradients = torch.autograd.grad(value, list(p.values()))
        with torch.no_grad():
            torch._foreach_add_(list(p.values()), gradients, alpha=-RATE)
        return float(value.detach())

    return once


def jax_words() -> Any:
    import jax
    import jax.numpy as jnp

    class Jax:
        relu, gelu = jax.nn.relu, staticmethod(partial(jax.nn.gelu, approximate=True))
        split = staticmethod(lambda x, count: jnp.split(x, count, -1))
        concat = staticmethod(lambda parts: jnp.concatenate(parts, 1))
        upsample = staticmethod(lambda x: x.repeat(2, 2).repeat(2, 3))

        @staticmethod
        def attention(q: Any, k: Any, v: Any) -> Any:
            turned = (x.swapaxes(1, 2) for x in (q, k, v))
            return jax.nn.dot_product_attention(*turned, is_causal=True).swapaxes(1, 2)

        @staticmethod
        def cross_entropy(logits: Any, labels: Any) -> Any:
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
            return -chosen.mean()

        @staticmethod
        def max_pool(x: Any) -> Any:
            window = (1, 1, 2, 2)
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")

        @staticmethod
        def conv(x: Any, w: Any, stride: int) -> Any:
            around = [(w.shape[2] // 2,) * 2] * 2
            return jax.lax.conv_general_dilated(x, w, (stride, stride), around)

        @staticmethod
        def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
            mean, variance = (m[None, :, None, None] for m in (x.mean((0, 2, 3)), x.var((0, 2, 3))))
            whole = (x - mean) * jax.lax.rsqrt(variance + 1e-5)
            return whole * scale[:, None, None] + shift[:, None, None]

        @staticmethod
        def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
            variance = x.var(-1, keepdims=True)
            return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(variance + 1e-5) * scale + shift

        @staticmethod
        def lstm(x: Any, wx: Any, wh: Any, b: Any) -> Any:
            def step(state: Any, x: Any) -> Any:
                i, f, g, o = jnp.split(x + state[0] @ wh, 4, -1)
                c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            start = jnp.zeros((x.shape[1], wh.shape[0]), x.dtype)
            return jax.lax.scan(step, (start, start), x @ wx + b)[1]

    return Jax


def jax(network: Callable[[Any], Loss], given: tuple[Any, ...], threads: int) -> Step:
    import jax

    loss = network(jax_words())

    @partial(jax.jit, donate_argnums=0)
    def step(p: Tree, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        return {k: v - RATE * gradients[k] for k, v in p.items()}, value

    kept = [jax.tree.map(jax.numpy.array, given[0])]
    rest = [jax.numpy.array(v) for v in given[1:]]

    def once() -> float:
        kept[0], value = step(kept[0], *rest)
        return float(value)

    return once


PEERS = {"torch": torch, "torch.compile": partial(torch, compiled=True), "jax": jax}


def arguments(make: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=F32) * F32(0.05)

    return tuple(make(draw, lambda most, *shape: rng.integers(0, most, shape)))


def measured(name: str, peers: list[str], threads: int, seconds: float) -> dict[str, Any]:
    """Seconds of a step of each library, or why there are none."""
    network, make = NETWORKS[name]
    given = arguments(make)
    runs: dict[str, Step] = {}
    found: dict[str, Any] = {}
    wanted: list[float] = []
    for peer, prepare in {"graphc": graphc, **{k: PEERS[k] for k in peers}}.items():
        began = time.perf_counter()
        try:
            run = prepare(network, given, threads)
            losses = [run() for _ in range(STEPS)]
        except Exception as problem:  # noqa: BLE001 - any failure of a peer is a result to report
            found[peer] = f"{type(problem).__name__}: {problem}".splitlines()[0][:100]
            continue
        wanted = wanted or losses
        if not np.allclose(losses, wanted, rtol=TOLERANCE):
            found[peer] = f"losses {losses} are not {wanted}"
            continue
        runs[peer] = run
        print(name, peer, f"first steps {time.perf_counter() - began:.1f} s", file=sys.stderr)
    clock = time.process_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {peer: [] for peer in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["graphc"]) < STEPS:
        for peer, run in runs.items():
            start = clock()
            run()
            times[peer].append(clock() - start)
    for peer, each in times.items():
        ratio = statistics.median(b / a for a, b in zip(times["graphc"], each, strict=True))
        found[peer] = statistics.median(each), ratio
    return found


def cell(found: Any) -> str:
    return found if isinstance(found, str) else f"{found[0] * 1e3:.1f} ms, {found[1]:.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", default=",".join(NETWORKS))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    limit_threads(given.threads)
    peers = given.peers.split(",")
    print(f"| network, {given.threads} thread(s) | graphc | steps/s | {' | '.join(peers)} |")
    print("|---" * (len(peers) + 3) + "|")
    for name in given.network.split(","):
        found = measured(name, peers, given.threads, given.seconds)
        own = found["graphc"]
        rest = " | ".join(cell(found[peer]) for peer in peers)
        print(f"| {name} | {own[0] * 1e3:.1f} ms | {1 / own[0]:.1f} | {rest} |", flush=True)


if __name__ == "__main__":
    main()
