"""What weights in few bits cost a language model: bits per character of text it has not seen.

    python examples/char_lstm.py --folder runs/char_lstm
    python -m benchmarks.perplexity runs/char_lstm

The network of `examples/char_lstm.py` reads the held-out stretches of the standard library as it is
trained, in windows; all of its matrices are then those of `gc.quantize`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import graphc as gc

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import char_lstm

FORMS: dict[str, dict[str, Any]] = {
    "i8, a scale for each column": {"bits": 8},
    "i8, groups of 32": {"bits": 8, "group": 32},
    "i4, groups of 64": {"bits": 4, "group": 64},
    "i4, groups of 32": {"bits": 4},
    "i4, groups of 16": {"bits": 4, "group": 16},
    "e4m3, a scale for each column": {"format": "e4m3"},
    "mxfp8": {"format": "mxfp8"},
    "mxfp4": {"format": "mxfp4"},
}


def quantized(params: Any, **form: Any) -> Any:
    """All matrices of the network: its table by rows, those of products by columns."""
    table, *others = params
    by_rows = gc.quantize(table, axis=1, least=0, **form)
    return (by_rows, *gc.quantize(others, least=0, **form))


def trained(folder: Path) -> Any:
    """The parameters of the newest checkpoint, layer by layer."""
    found = gc.Checkpoints(folder).latest()
    if found is None:
        raise SystemExit(f"{folder} has no checkpoint: run examples/char_lstm.py first")
    layers: list[dict[str, Any]] = [{}, {}, {}]
    for name, array in found.tree.items():
        kind, *rest = name.split(".")
        if kind == "params":
            layers[int(rest[0])][rest[1]] = array
    return tuple(layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    text = char_lstm.read_text((), char_lstm.CHARACTERS)
    ids, params = gc.data.Characters(text), trained(given.folder)
    net = char_lstm.network(len(ids), char_lstm.HIDDEN)
    loss = gc.compile(lambda p, x, y: char_lstm.bits(net(p, x), y))
    held = gc.data.windows(ids.encode(char_lstm.parts(text)[1]), char_lstm.LENGTH, 128)
    forms = {"f32": params}
    forms |= {name: quantized(params, **form) for name, form in FORMS.items()}
    spent: dict[str, list[float]] = {name: [] for name in forms}
    count = 0
    for x, y in held:
        count += x.size
        for name, weights in forms.items():
            spent[name].append(float(loss(weights, x, y)) * x.size)
    exact = sum(spent["f32"]) / count
    print("| weights | bits per character | perplexity | change |\n|---|---|---|---|")
    for name, losses in spent.items():
        found = sum(losses) / count
        print(f"| {name} | {found:.5f} | {2**found:.4f} | {2 ** (found - exact) - 1:+.3%} |")
    print(f"\n{count:,} characters.")


if __name__ == "__main__":
    main()
