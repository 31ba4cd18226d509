"""Images from files, decoded by Pillow while the batch before is being used."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import FeedError
from graphc.learn.loader import Array, Loader, Which
from graphc.runtime.input.formats import PICTURES

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_DTYPES = {"f32": np.float32, "u8": np.uint8}


class Images:
    """Image files, with the number of their class where they come from a folder of classes.

    A batch is (images, labels), or images alone for a list of files: [batch, channels,
    height, width] in f32 0..1 or u8 0..255, and i32[batch].
    """

    is_ready = False

    def __init__(
        self, where: Any, size: tuple[int, int] | None = None, channels: int = 3, dtype: str = "f32"
    ) -> None:
        if channels not in _MODES or dtype not in _DTYPES:
            raise FeedError(
                f"images of {channels!r} channels in {dtype!r}",
                hint="channels is 1, 3 or 4, and dtype 'f32' (0..1) or 'u8' (0..255)",
            )
        if size is not None and (len(size) != 2 or not all(type(n) is int and n > 0 for n in size)):
            raise FeedError(f"size is (height, width), got {size!r}")
        self._opener = _pillow()
        self.size = size
        self.mode = _MODES[channels]
        self.dtype = np.dtype(_DTYPES[dtype])
        self.classes: tuple[str, ...] = ()
        self.labels: Array | None = None
        if isinstance(where, str | os.PathLike):
            self.files, self.labels, self.classes = _folder(Path(where))
        else:
            self.files = [Path(file) for file in where]

    def __len__(self) -> int:
        return len(self.files)

    def rows(self, which: Which) -> Any:
        """A batch. Raises FeedError naming a file that is no image or of another size."""
        numbers = np.arange(len(self))[which]
        pixels = [self._pixels(self.files[k]) for k in numbers]
        for k, found in zip(numbers, pixels):
            if found.shape != pixels[0].shape:
                raise FeedError(
                    f"{self.files[k]} is {found.shape[1]}x{found.shape[2]}, "
                    f"{self.files[numbers[0]]} {pixels[0].shape[1]}x{pixels[0].shape[2]}",
                    hint="size=(height, width) resizes every image",
                )
        images = np.stack(pixels)
        return images if self.labels is None else (images, self.labels[numbers])

    def _pixels(self, file: Path) -> Array:
        try:
            with self._opener.open(file, formats=PICTURES) as opened:
                image = opened.convert(self.mode)
            if self.size is not None and image.size != self.size[::-1]:
                image = image.resize(self.size[::-1])
        except (OSError, ValueError, SyntaxError, self._opener.DecompressionBombError) as error:
            raise FeedError(f"{file} cannot be read as an image: {error}") from None
        rows = np.asarray(image).reshape(image.height, image.width, -1)
        pixels = np.ascontiguousarray(rows.transpose(2, 0, 1))
        return pixels if self.dtype == np.uint8 else pixels.astype(np.float32) / np.float32(255)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise FeedError(
            "reading images needs Pillow", hint="pip install 'graphc[images]'"
        ) from None
    return Image


def _folder(folder: Path) -> tuple[list[Path], Array, tuple[str, ...]]:
    """The images of a folder's sub-folders, each of them a class, in the order of their names."""
    if not folder.is_dir():
        raise FeedError(f"{folder} is no folder")
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    found = [(file, k) for k, name in enumerate(classes) for file in _images(folder / name)]
    if not found:
        raise FeedError(
            f"{folder} has no images in sub-folders",
            hint="the name of each sub-folder is a class: cats/1.png, dogs/1.png",
        )
    return [file for file, _ in found], np.array([k for _, k in found], np.int32), tuple(classes)


def _images(folder: Path) -> Iterable[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())


def images(
    where: Any,
    size: tuple[int, int] | None = None,
    batch: int = 32,
    *,
    channels: int = 3,
    dtype: str = "f32",
    **options: Any,
) -> Loader:
    """Batches of images: of a folder with one sub-folder per class, or of a list of files.

    size       (height, width) that every image is resized to
    channels   1 grey, 3 RGB, 4 with alpha
    dtype      'f32' (0..1) or 'u8' (0..255)

    The names of the classes are `loader.source.classes`; further options are those of `Loader`.
    Raises FeedError without Pillow.
    """
    return Loader(Images(where, size, channels, dtype), batch, **options)
