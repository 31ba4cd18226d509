"""A language model in GPT-2's shape writes one token at a time, its weights in 32 to 4 bits.

What has been written so far stays in a cache of keys and values that each step is given and gives
back, in the same memory.  A step reads every weight once, so it takes as long as that: the table
compares it with reading as many bytes.  Weights are random unless a file has some: the text is
numbers of tokens.

With `--draft` the same weights in fewer bits guess what comes next, and the model looks at several
guesses at once, which takes as long as at one.  The noise that draws a token is that of its place,
so that the text is the same as without: a guess is right where both models draw the same.

    python examples/gpt.py                                # 124 million weights
    python examples/gpt.py --bits 8 --tokens 100 --batch 8
    python examples/gpt.py --bits 32 --draft 4
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
    """Attention of the new rows x[batch, t, width] to all so far; keys and values join memory."""
    batch, count, width = x.shape
    parts = np.split(dense(x, p["qkv"]), 3, axis=-1)
    q, k, v = (part.reshape(batch, count, heads, -1).swapaxes(1, 2) for part in parts)
    keys = gc.dynamic_update_slice(memory["keys"], k, (0, 0, start, 0))
    values = gc.dynamic_update_slice(memory["values"], v, (0, 0, start, 0))
    seen = np.arange(keys.shape[2]) <= (start + np.arange(count))[:, None]
    made = gc.attention(q, keys, values, mask=seen).swapaxes(1, 2).reshape(batch, count, width)
    return dense(made, p["out"]), {"keys": keys, "values": values}


def scores(params, cache, tokens, start, heads, last=1):
    """Scores of what follows each of the last of tokens[batch, t], which begin at position `start`;
    and the new cache."""
    x = params["words"][tokens] + params["places"][start + np.arange(tokens.shape[1])]
    made = []
    for p, memory in zip(params["layers"], cache):
        attended, memory = attend(layer_norm(x, p["norm1"]), p, memory, start, heads)
        x = x + attended
        x = x + dense(gelu(dense(layer_norm(x, p["norm2"]), p["up"])), p["down"])
        made.append(memory)
    return layer_norm(x[:, -last:], params["norm"]) @ params["words"].T, made


def draw(made, key, start, temperature):
    """A token for each of the scores made[batch, t, words], out of the likeliest ones.  The noise
    of a token depends on nothing but the text it is in, its position and its number."""
    best, places = gc.topk(made, 40)
    batch, count, kept = best.shape
    row, column = np.divmod(np.arange(batch * count * kept) // kept, count)

    def noise(row, position, token):
        mixed = gc.random.fold_in(gc.random.fold_in(key, row), position)
        mixed = gc.random.fold_in(mixed, token)
        return gc.random.gumbel(mixed, ())

    drawn = gc.vmap(noise)(row, start + column, places.reshape(-1)).reshape(best.shape)
    first = np.argmax(best / temperature + drawn, axis=-1)[..., None]
    return np.take_along_axis(places, first, axis=-1)[..., 0].astype(np.int32)


def writer(heads, precision):
    """The compiled step: the next token of each text, and the cache."""

    def step(params, cache, tokens, start, key, temperature):
        made, cache = scores(params, cache, tokens, start, heads)
        return draw(made, key, start + tokens.shape[1] - 1, temperature), cache

    return gc.compile(step, donate="cache", precision=precision, sizes="exact")


def guesser(heads, ahead):
    """The compiled step with a draft: tokens[1, ahead + 1], how many of them hold, the caches."""

    def step(params, draft, caches, tokens, start, key, temperature):
        cache, drafted = caches
        given = [tokens]
        for k in range(ahead + 1):  # the last one is not drawn: it joins the cache of the draft
            made, drafted = scores(draft, drafted, given[k], start + k, heads)
            given.append(draw(made, key, start + k, temperature))
        tokens = np.concatenate(given[:-1], axis=1)
        made, cache = scores(params, cache, tokens, start, heads, last=ahead + 1)
        drawn = draw(made, key, start, temperature)
        right = np.cumprod((drawn[0, :-1] == tokens[0, 1:]).astype(np.int32))
        return drawn, right.sum() + 1, (cache, drafted)

    return gc.compile(step, donate="caches", sizes="exact")


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
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = {name.removeprefix("transformer."): x for name, x in load_file(path).items()}
    except SafetensorError as error:
        raise click.ClickException(f"{path} is no safetensors file: {error}") from error

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


def empty_cache(shape, length, batch=1):
    half = (batch, shape["heads"], length, shape["width"] // shape["heads"])
    return [
        {"keys": np.zeros(half, np.float32), "values": np.zeros(half, np.float32)}
        for _ in range(shape["layers"])
    ]


def room(prompt, count):
    """Positions of a cache that a text fits into, in whole blocks."""
    return -(-(prompt.shape[1] + count) // 64) * 64


def write(step, params, shape, prompt, count, seed, temperature):
    """The tokens after prompt[batch, t], seconds of the prompt and of each token after it."""
    cache = empty_cache(shape, room(prompt, count), len(prompt))
    key, heat = gc.random.key(seed), np.float32(temperature)
    tokens, position, text, seconds = prompt, 0, [], []
    for _ in range(count):
        began = time.perf_counter()
        given, position = np.int32(position), position + tokens.shape[1]
        tokens, cache = step(params, cache, tokens, given, key, heat)
        seconds.append(time.perf_counter() - began)
        text.append(np.asarray(tokens)[:, 0])
    return np.stack(text, axis=1), seconds


def write_ahead(steps, models, shape, prompt, count, seed, temperature, ahead):
    """The same text, by a model and the draft of it: tokens, seconds of all, and of how many steps.

    `steps` are those of `writer` and `guesser`."""
    first, guess = steps
    key, heat = gc.random.key(seed), np.float32(temperature)
    starts = [
        first(
            each,
            empty_cache(shape, room(prompt, count + ahead + 1)),
            prompt,
            np.int32(0),
            key,
            heat,
        )
        for each in models
    ]
    tokens, caches = starts[0][0], tuple(cache for _, cache in starts)
    text, seconds = [int(tokens[0, 0])], []
    while len(text) < count:
        began = time.perf_counter()
        place = np.int32(prompt.shape[1] + len(text) - 1)
        drawn, right, caches = guess(*models, caches, tokens, place, key, heat)
        seconds.append(time.perf_counter() - began)
        text += np.asarray(drawn)[0, : int(right)].tolist()
        tokens = np.array([text[-1:]], np.int32)
    return text[:count], sum(seconds) * (count - 1) / (len(text) - 1), len(seconds)


def reading_seconds(count):
    """The time that reading so many bytes takes, to add them up."""
    block, total = np.ones(count // 4, np.float32), gc.compile(np.sum)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        total(block)
        times.append(time.perf_counter() - began)
    return sorted(times)[2]


def measured(exact, bits, shape, prompt, options):
    """What the table says of a model, its weights in so many bits."""
    params = in_bits(exact, bits)
    step = writer(shape["heads"], "bf16" if bits == 16 else "f32")
    write(step, params, shape, prompt, 2, *options[1:])  # compiles
    text, seconds = write(step, params, shape, prompt, *options)
    token = sorted(seconds[1:])[len(seconds) // 2 - 1]
    return {
        "bits": bits,
        "megabytes": bytes_of(params) / 1e6,
        "prompt_ms": seconds[0] * 1e3,
        "token_ms": token * 1e3,
        "share_of_reading_rate": reading_seconds(bytes_of(params)) / token,
        "text": text[0].tolist(),
    }


def guessed_for(draft):
    """The bits of the models that a draft of so many bits guesses for."""
    return [bits for bits in (32, 8) if bits > int(draft)]


def with_draft(exact, bits, draft, ahead, shape, prompt, options):
    """What the table says of a model whose tokens the same weights in fewer bits guess."""
    models = in_bits(exact, bits), in_bits(exact, draft)
    steps = writer(shape["heads"], "f32"), guesser(shape["heads"], ahead)
    count, seed, temperature = options
    write_ahead(steps, models, shape, prompt, ahead + 2, seed, temperature, ahead)  # compiles
    text, seconds, calls = write_ahead(
        steps, models, shape, prompt, count, seed, temperature, ahead
    )
    token = seconds / (len(text) - 1)
    return {"token_ms": token * 1e3, "tokens_per_step": (len(text) - 1) / calls, "text": text}


def shown(rows, batch):
    click.echo("bits      MB   prompt ms   step ms   tokens/s   share of the reading rate")
    for row in rows:
        token = row["token_ms"]
        click.echo(
            f"{row['bits']:4} {row['megabytes']:7.0f} {row['prompt_ms']:11.1f} {token:9.2f}"
            f" {1e3 * batch / token:10.1f} {row['share_of_reading_rate']:15.0%}"
        )
        if guessed := row.get("draft"):
            click.echo(
                f"     with a draft: {guessed['token_ms']:.2f} ms a token,"
                f" {guessed['tokens_per_step']:.1f} tokens a step"
            )
    click.echo(f"text: {' '.join(map(str, rows[0]['text'][:12]))} ...")


def prompt_of(text, shape, count, batch):
    """The numbers of tokens in a text, once for each of the texts to be written."""
    try:
        tokens = [int(word) % shape["words"] for word in text.split()]
    except ValueError as error:
        raise click.BadParameter("a prompt is numbers of tokens", param_hint="--prompt") from error
    if not tokens:
        raise click.BadParameter("a prompt has one token at least", param_hint="--prompt")
    if len(tokens) > shape["length"] - count:
        raise click.ClickException(f"prompt and text must fit into {shape['length']} tokens")
    return np.array([tokens] * batch, np.int32)


@click.command(help="A language model in GPT-2's shape writes, its weights in 32 to 4 bits.")
@click.option("--bits", type=click.Choice(["32", "16", "8", "4", "all"]), default="all")
@click.option("--tokens", "count", type=click.IntRange(2), default=40, help="How many to write.")
@click.option("--batch", type=click.IntRange(1, 64), default=1, help="Texts at a time.")
@click.option("--draft", type=click.Choice(["8", "4"]), help="Guess with so many bits.")
@click.option("--ahead", type=click.IntRange(1, 8), default=3, help="Guesses at a time.")
@click.option("--prompt", default="464 3290 318 257", help="Numbers of tokens (modulo all words).")
@click.option("--weights", type=FILE, help="GPT-2's as safetensors; random ones otherwise.")
@click.option("--temperature", type=click.FloatRange(1e-3), default=0.8)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0)
@click.option("--quick", is_flag=True, help="A small model.")
@click.option("--json", "as_json", is_flag=True)
def main(bits, count, batch, draft, ahead, prompt, weights, temperature, seed, quick, as_json):
    shape = QUICK if quick else FULL
    if draft and batch > 1:
        raise click.ClickException("a draft guesses for one text: leave out --batch")
    if draft and bits != "all" and int(bits) not in guessed_for(draft):
        raise click.ClickException("a draft guesses for 32 bits, and one of 4 bits for 8, too")
    tokens = prompt_of(prompt, shape, count + (ahead if draft else 0), batch)
    rng = np.random.default_rng(seed)
    try:
        exact = stored_weights(weights, shape) if weights else random_weights(shape, rng)
    except KeyError as missing:
        raise click.ClickException(f"{weights} has no array {missing}") from missing
    rows, options = [], (count, seed, temperature)
    for each in (32, 16, 8, 4) if bits == "all" else (int(bits),):
        rows.append(measured(exact, each, shape, tokens, options))
        if draft and each in guessed_for(draft):
            rows[-1]["draft"] = with_draft(exact, each, int(draft), ahead, shape, tokens, options)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        shown(rows, batch)


if __name__ == "__main__":
    main()
