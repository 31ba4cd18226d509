"""Simulated speed-ups of pipelines beside those that torchgpipe has published for eight P40 GPUs.

python -m benchmarks.pipelines

The models are lists of layers with what they compute and what they pass on, in the proportions of
their papers; stages are cut by the exact balance, and the schedule is GPipe's.
"""

from __future__ import annotations

from itertools import pairwise

from graphc.base.record import record
from graphc.passes.pipelining.balance import balanced
from graphc.passes.pipelining.predict import predict
from graphc.passes.pipelining.timetable import Action, timetable

FLOPS, MEMORY, LINK = 6e12, 300e9, 10e9  # what a P40 reaches in f32, its memory, PCIe between two
PASSES = 4  # over what a convolution writes: itself, normalisation, activation, addition
BACKWARD = 2  # times a forward pass


@record(frozen=True)
class Layer:
    """Seconds of a forward pass for one picture, and bytes that it passes on."""

    seconds: float
    passed: float


def convolution(size: int, inputs: int, outputs: int, kernel: int = 3, skipped: float = 0) -> Layer:
    """A convolution to size x size; `skipped` more bytes pass by."""
    written = 4.0 * size * size * outputs
    flops = 2.0 * kernel * kernel * inputs * outputs * size * size
    return Layer(flops / FLOPS + PASSES * written / MEMORY, written + skipped)


def resnet101() -> list[Layer]:
    """Bottlenecks of three convolutions, 3 + 4 + 23 + 3 of them, on 224 x 224."""
    layers, inputs = [convolution(112, 3, 64, 7)], 64
    for count, width, size in ((3, 64, 56), (4, 128, 28), (23, 256, 14), (3, 512, 7)):
        for _ in range(count):
            beside = 4.0 * size * size * 4 * width
            layers.append(convolution(size, inputs, width, 1, beside))
            layers.append(convolution(size, width, width, 3, beside))
            inputs = 4 * width
            layers.append(convolution(size, width, inputs, 1))
    return layers


def unet(depth: int = 5, blocks: int = 6, width: int = 72, size: int = 192) -> list[Layer]:
    """Down and up again, with a skip at every level."""
    down, skips = [], [0.0]
    for level in range(depth):
        extent, channels = size >> level, width << level
        down += [convolution(extent, channels, channels, 3, sum(skips)) for _ in range(blocks)]
        skips.append(4.0 * extent * extent * channels)
    up = []
    for level in reversed(range(depth)):
        extent, channels = size >> level, width << level
        skips.pop()
        up += [convolution(extent, channels, channels, 3, sum(skips)) for _ in range(blocks)]
    return down + up


def amoebanet(cells: int = 18, width: int = 256) -> list[Layer]:
    """A stem, and three rows of normal cells with a larger cell before each of the last two."""
    layers = [convolution(112, 3, width // 4), convolution(56, width // 4, width // 2, 7)]
    layers.append(convolution(28, width // 2, width, 7))
    for row, size in enumerate((28, 14, 7)):
        channels = width << row
        if row:
            layers.append(convolution(size, channels // 2, channels, 5))
        layers += [convolution(size, channels, channels, 3)] * (cells // 3)
    return layers


def seconds(layers: list[Layer], devices: int, chunks: int, checkpoint: str) -> float:
    """A step for one picture in each chunk, per picture."""
    ends = balanced([layer.seconds for layer in layers], devices)
    forward = [sum(layer.seconds for layer in layers[a:b]) for a, b in pairwise([0, *ends])]
    table = timetable("gpipe", devices, chunks).checkpointed(checkpoint)

    def took(action: Action) -> float:
        return forward[action.stage] * (BACKWARD if action.kind == "B" else 1)

    def transfer(source: Action, target: Action) -> float:
        return layers[ends[min(source.stage, target.stage)] - 1].passed / LINK

    return predict(table, took, transfer, lockstep=True).makespan / chunks


def ceiling(devices: int, chunks: int) -> float:
    """M K / (M + K - 1): perfect balance, and no transfers."""
    return devices * chunks / (chunks + devices - 1)


@record(frozen=True)
class Row:
    """A published speed-up and the simulated one; both are against `base` (devices, chunks)."""

    model: str
    devices: int
    chunks: int
    base: tuple[int, int]
    published: float

    def simulated(self, checkpoint: str = "always") -> float:
        layers = MODELS[self.model]()
        kept = checkpoint if self.base[0] > 1 else "never"
        alone = seconds(layers, *self.base, kept)
        return alone / seconds(layers, self.devices, self.chunks, checkpoint)


MODELS = {"AmoebaNet-D": amoebanet, "ResNet-101": resnet101, "U-Net": unet}
ROWS = (
    Row("AmoebaNet-D", 2, 4, (2, 1), 1.539),
    Row("AmoebaNet-D", 8, 32, (2, 1), 4.953),
    Row("ResNet-101", 1, 32, (1, 1), 0.853),
    Row("ResNet-101", 8, 32, (1, 1), 4.294),
    Row("U-Net", 1, 32, (1, 1), 0.858),
    Row("U-Net", 8, 32, (1, 1), 3.105),
)


def main() -> None:
    print("model        devices chunks  published  simulated  ceiling (no recomputation)")
    for row in ROWS:
        most = ceiling(row.devices, row.chunks)
        print(
            f"{row.model:12} {row.devices:7} {row.chunks:6} {row.published:10.3f} "
            f"{row.simulated():10.3f} {most:8.3f}"
        )


if __name__ == "__main__":
    main()
