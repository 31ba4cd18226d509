"""Saves a small network, mlp.gir, its weights beside it, and an input, x.npy, for the command line.

python examples/mlp.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import graphc as gc


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32) / 8


W1, B1, W2 = random(256, 512), random(512), random(512, 10)


@gc.compile
def mlp(x):
    """[n, 256] -> [n, 10]; the weights are constants of the graph."""
    h = np.maximum(x @ W1 + B1, 0)
    e = np.exp(h @ W2)
    return e / e.sum(axis=1, keepdims=True)


def main(folder: str = ".") -> None:
    out = Path(folder)
    mlp.save(out / "mlp.gir", gc.spec((64, 256), "f32"))
    np.save(out / "x.npy", random(64, 256))
    print(f"saved {out / 'mlp.gir'} and {out / 'x.npy'}")


if __name__ == "__main__":
    main(*(argument for argument in sys.argv[1:] if argument != "--quick"))
