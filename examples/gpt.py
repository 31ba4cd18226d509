"""A language model in GPT-2's shape writes one token at a time, its weights in 32 to 4 bits.

What has been written so far stays in a cache of keys and values that each step is given and gives
back, in the same memory.  A step reads every weight once, so it takes as long as that: the table
compares it with reading as many bytes.  Weights are random unless a file has some: the text is
numbers of tokens.

    python examples/gpt.py                                # 124 million weights
    python examples/gpt.py --bits 8 --tokens 100
    python examples/gpt.py --weights model.safetensors --prompt "464 3290 318"
"""

import json
import time
from pathlib import Path

import click
import ml_dtypes
import numpy as np

import graphc as gc

FULL = {"layers": 12, "width": 768, "heads": 12, "words": 50257, "length": 512}
QUICK = {"layers": 2, "width": 128, "heads": 4, "words": 600, "length": 64}
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


# -- the model ------------------------------------------------------------------------------------


def layer_norm(x, p):
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(spread + 1e-5) * p["scale"] + p["shift"]


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def dense(x, p):
    return x @ p["w"] + p["b"]


def attend(x, p, memory, start, heads):
    """Attention of the new rows x[t, width] to all so far; the keys and values join the memory."""
    count, width = x.shape
    parts = np.split(dense(x, p["qkv"]), 3, axis=-1)
    q, k, v = (part.reshape(count, heads, width // heads).swapaxes(0, 1) for part in parts)
    keys = gc.dynamic_update_slice(memory["keys"], k, (0, start, 0))
    values = gc.dynamic_update_slice(memory["values"], v, (0, start, 0))
    seen = np.arange(keys.shape[1]) <= (start + np.arange(count))[:, None]
    made = gc.attention(q, keys, values, mask=seen).swapaxes(0, 1).reshape(count, width)
    return dense(made, p["out"]), {"keys": keys, "values": values}


def scores(params, cache, tokens, start, heads):
    """Scores of the token after tokens[t], which begin at position `start`; and the new cache."""
    x = params["words"][tokens] + params["places"][start + np.arange(tokens.shape[0])]
    made = []
    for p, memory in zip(params["layers"], cache):
        attended, memory = attend(layer_norm(x, p["norm1"]), p, memory, start, heads)
        x = x + attended
        x = x + dense(gelu(dense(layer_norm(x, p["norm2"]), p["up"])), p["down"])
        made.append(memory)
    return layer_norm(x[-1:], params["norm"]) @ params["words"].T, made


def writer(heads, precision):
    """The compiled step: the next token, drawn from the likeliest ones, and the cache."""

    def step(params, cache, tokens, start, key, temperature):
        made, cache = scores(params, cache, tokens, start, heads)
        best, places = gc.topk(made[0], 40)
        drawn = gc.random.categorical(key, best / temperature)
        return places[drawn].astype(np.int32)[None], cache

    return gc.compile(step, donate="cache", precision=precision, sizes="exact")


# -- its weights ----------------------------------------------------------------------------------


def random_weights(shape, rng):
    width = shape["width"]

    def normal(*dims):
        return rng.standard_normal(dims, dtype=np.float32) * np.float32(0.02)

    def linear(inputs, outputs):
        return {"w": normal(inputs, outputs), "b": normal(outputs)}

    def norm():
        return {"scale": np.ones(width, np.float32), "shift": np.zeros(width, np.float32)}

    def layer():
        return {
            "norm1": norm(),
            "qkv": linear(width, 3 * width),
            "out": linear(width, width),
            "norm2": norm(),
            "up": linear(width, 4 * width),
            "down": linear(4 * width, width),
        }

    return {
        "words": normal(shape["words"], width),
        "places": normal(shape["length"], width),
        "layers": [layer() for _ in range(shape["layers"])],
        "norm": norm(),
    }


def stored_weights(path, shape):
    """Those of a file with the names that GPT-2's have in PyTorch."""
    from safetensors.numpy import load_file

    tensors = {name.removeprefix("transformer."): x for name, x in load_file(path).items()}

    def linear(name):
        return {"w": tensors[f"{name}.weight"], "b": tensors[f"{name}.bias"]}

    def norm(name):
        return {"scale": tensors[f"{name}.weight"], "shift": tensors[f"{name}.bias"]}

    def layer(n):
        return {
            "norm1": norm(f"h.{n}.ln_1"),
            "qkv": linear(f"h.{n}.attn.c_attn"),
            "out": linear(f"h.{n}.attn.c_proj"),
            "norm2": norm(f"h.{n}.ln_2"),
            "up": linear(f"h.{n}.mlp.c_fc"),
            "down": linear(f"h.{n}.mlp.c_proj"),
        }

    return {
        "words": tensors["wte.weight"],
        "places": tensors["wpe.weight"][: shape["length"]],
        "layers": [layer(n) for n in range(shape["layers"])],
        "norm": norm("ln_f"),
    }


def in_bits(params, bits):
    """The weights in so many bits: tables by rows, the others by the columns of their products."""
    if bits == 32:
        return params
    tables = {name: params[name] for name in ("words", "places")}
    if bits == 16:
        return short(params)
    return gc.quantize(params, bits=bits) | gc.quantize(tables, axis=1, bits=bits)


def short(tree):
    """The matrices of a nesting in bf16."""
    if isinstance(tree, dict):
        return {name: short(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [short(value) for value in tree]
    return tree.astype(ml_dtypes.bfloat16) if tree.ndim == 2 else tree


def bytes_of(tree):
    if isinstance(tree, dict | list):
        return sum(map(bytes_of, tree.values() if isinstance(tree, dict) else tree))
    return tree.nbytes


# -- writing --------------------------------------------------------------------------------------


def empty_cache(shape):
    half = (shape["heads"], shape["length"], shape["width"] // shape["heads"])
    return [
        {"keys": np.zeros(half, np.float32), "values": np.zeros(half, np.float32)}
        for _ in range(shape["layers"])
    ]


def write(step, params, shape, prompt, count, seed, temperature):
    """The tokens after a prompt, seconds of the prompt and of each token after it."""
    cache = empty_cache(shape)
    tokens, position, text, seconds = prompt, 0, [], []
    for number in range(count):
        began = time.perf_counter()
        key = gc.random.key(seed + number)
        position, given = position + len(tokens), (np.int32(position), key, np.float32(temperature))
        tokens, cache = step(params, cache, tokens, *given)
        seconds.append(time.perf_counter() - began)
        text.append(int(tokens[0]))
    return text, seconds


def reading_seconds(count):
    """The time that reading so many bytes takes, to add them up."""
    block, total = np.ones(count // 4, np.float32), gc.compile(np.sum)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        total(block)
        times.append(time.perf_counter() - began)
    return sorted(times)[2]


@click.command(help="A language model in GPT-2's shape writes, its weights in 32 to 4 bits.")
@click.option("--bits", type=click.Choice(["32", "16", "8", "4", "all"]), default="all")
@click.option("--tokens", "count", type=click.IntRange(2), default=40, help="How many to write.")
@click.option("--prompt", default="464 3290 318 257", help="Numbers of tokens (modulo all words).")
@click.option("--weights", type=FILE, help="GPT-2's as safetensors; random ones otherwise.")
@click.option("--temperature", type=click.FloatRange(1e-3), default=0.8)
@click.option("--seed", type=int, default=0)
@click.option("--quick", is_flag=True, help="A small model.")
@click.option("--json", "as_json", is_flag=True)
def main(bits, count, prompt, weights, temperature, seed, quick, as_json):
    shape = QUICK if quick else FULL
    try:
        tokens = np.array([int(word) % shape["words"] for word in prompt.split()], np.int32)
    except ValueError as error:
        raise click.BadParameter("a prompt is numbers of tokens", param_hint="--prompt") from error
    if not 1 <= len(tokens) <= shape["length"] - count:
        raise click.ClickException(f"prompt and text must fit into {shape['length']} tokens")
    rng = np.random.default_rng(seed)
    try:
        exact = stored_weights(weights, shape) if weights else random_weights(shape, rng)
    except KeyError as missing:
        raise click.ClickException(f"{weights} has no array {missing}") from missing
    rows = []
    for each in (32, 16, 8, 4) if bits == "all" else (int(bits),):
        params = in_bits(exact, each)
        step = writer(shape["heads"], "bf16" if each == 16 else "f32")
        write(step, params, shape, tokens, 2, seed, temperature)  # compiles
        text, seconds = write(step, params, shape, tokens, count, seed, temperature)
        token = sorted(seconds[1:])[len(seconds) // 2 - 1]
        share = reading_seconds(bytes_of(params)) / token
        rows.append((each, bytes_of(params) / 1e6, seconds[0] * 1e3, token * 1e3, share, text))
    if as_json:
        names = ("bits", "megabytes", "prompt_ms", "token_ms", "share_of_reading_rate", "text")
        click.echo(json.dumps([dict(zip(names, row)) for row in rows]))
        return
    click.echo("bits      MB   prompt ms   token ms   tokens/s   share of the reading rate")
    for each, size, first, token, share, _ in rows:
        click.echo(
            f"{each:4} {size:7.0f} {first:11.1f} {token:10.2f} {1e3 / token:10.1f} {share:15.0%}"
        )
    click.echo(f"text: {' '.join(map(str, rows[0][-1][:12]))} ...")


if __name__ == "__main__":
    main()
