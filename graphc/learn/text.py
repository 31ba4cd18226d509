"""Text as numbers: vocabularies, windows for language models, and padded lines."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphc.errors import FeedError
from graphc.learn.loader import Array, Loader, Which

Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Vocabulary(Protocol):
    """Text to ids and back; `len` is the number of ids."""

    def __len__(self) -> int: ...
    def encode(self, text: str) -> Array: ...
    def decode(self, ids: Any) -> str: ...


class Bytes:
    """Ids 0..255: the bytes of the text in UTF-8."""

    def __len__(self) -> int:
        return 256

    def encode(self, text: str) -> Array:
        """u8 ids, as many as the text has bytes."""
        return np.frombuffer(text.encode(), np.uint8)

    def decode(self, ids: Any) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD."""
        return np.asarray(ids).astype(np.uint8).tobytes().decode(errors="replace")


class Characters:
    """Ids 0..n-1: the n characters that occur in a text, in the order of Unicode."""

    def __init__(self, text: str) -> None:
        if not text:
            raise FeedError("a vocabulary of no characters")
        codes = _codes(text)
        present = np.zeros(int(codes.max()) + 1, bool)
        present[codes] = True
        self._codes = np.flatnonzero(present)
        self._ids = np.full(present.size, -1, np.int32)
        self._ids[self._codes] = np.arange(self._codes.size)

    def __len__(self) -> int:
        return int(self._codes.size)

    @property
    def characters(self) -> str:
        return self.decode(np.arange(len(self)))

    def encode(self, text: str) -> Array:
        """i32 ids. Raises FeedError for a character that the vocabulary does not have."""
        codes = _codes(text)
        ids = self._ids[np.minimum(codes, self._ids.size - 1)]
        unknown = (ids < 0) | (codes >= self._ids.size)
        if unknown.any():
            raise FeedError(f"the vocabulary has no {chr(codes[unknown][0])!r}")
        return ids

    def decode(self, ids: Any) -> str:
        """Text of ids of any shape, in row-major order."""
        codes = self._codes[np.asarray(ids).reshape(-1)].astype("<u4")
        return str(codes.tobytes(), "utf-32-le")


LONGEST = 1 << 24  # ids of a window


def _codes(text: str) -> Array:
    if not isinstance(text, str):
        raise FeedError(f"a text is expected, got {type(text).__name__}")
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def read_text(files: Files) -> str:
    """The files (UTF-8) one after the other. Raises FeedError naming a file that cannot be read."""
    paths = [files] if isinstance(files, str | os.PathLike) else list(files)
    return "".join(_read(Path(path)) for path in paths)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FeedError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise FeedError(f"{path} is not UTF-8 (byte {error.start})") from None


def _vocabulary(by: str, text: str) -> Vocabulary:
    if by not in ("character", "byte"):
        raise FeedError(f"text is read by 'character' or by 'byte', not by {by!r}")
    return Characters(text) if by == "character" else Bytes()


def _check_length(length: int) -> None:
    if type(length) is not int or not 1 <= length <= LONGEST:
        raise FeedError(f"length must be a whole number from 1 to {LONGEST}, got {length!r:.80}")


# ------------------------------------------------------------------------------------ windows


class Windows:
    """(inputs, targets): windows of a row of ids, and the same windows one id later.

    ids       0 1 2 3 4 5 6 7 8         length 4, stride 4
    inputs    0 1 2 3 | 4 5 6 7
    targets   1 2 3 4 | 5 6 7 8
    """

    is_ready = True

    def __init__(self, ids: Any, length: int, stride: int | None = None) -> None:
        _check_length(length)
        _check_length(stride := length if stride is None else stride)
        self._ids = np.asarray(ids)
        if self._ids.ndim != 1 or self._ids.dtype.kind not in "iu":
            raise FeedError(
                f"windows need one row of integers, got {self._ids.dtype}{list(self._ids.shape)}"
            )
        self.stride = stride
        self.vocabulary: Vocabulary | None = None
        self._inside = np.arange(length + 1)

    def __len__(self) -> int:
        return max(0, (self._ids.size - self._inside.size) // self.stride + 1)

    def rows(self, which: Which) -> tuple[Array, Array]:
        """Two i32[batch, length]."""
        numbers = np.arange(len(self))[which] if isinstance(which, slice) else which
        made = self._ids[numbers[:, None] * self.stride + self._inside].astype(np.int32)
        return np.ascontiguousarray(made[:, :-1]), np.ascontiguousarray(made[:, 1:])


def windows(
    ids: Any, length: int, batch: int = 32, *, stride: int | None = None, **options: Any
) -> Loader:
    """Windows of a row of ids for a language model; see `Windows` and `Loader`."""
    return Loader(Windows(ids, length, stride), batch, **options)


def text(
    files: Files,
    length: int,
    batch: int = 32,
    *,
    stride: int | None = None,
    by: str = "character",
    **options: Any,
) -> Loader:
    """Windows of the text of files, by 'character' or by 'byte'.

    The vocabulary is `loader.source.vocabulary`.  Raises FeedError for files that are no UTF-8.
    """
    found = read_text(files)
    vocabulary = _vocabulary(by, found)
    source = Windows(vocabulary.encode(found), length, stride)
    source.vocabulary = vocabulary
    return Loader(source, batch, **options)


# ------------------------------------------------------------------------------------ lines


class Lines:
    """{"ids": i32[batch, length], "lengths": i32[batch]}: lines, cut or padded with 0 to a length.

    Id 0 stands for no character of the text: it is the character NUL.
    """

    is_ready = True

    def __init__(self, found: Iterable[str], length: int, by: str = "character") -> None:
        _check_length(length)
        chosen = [line[:length] for line in found if line]
        self.vocabulary = _vocabulary(by, "\0" + "".join(chosen))
        encoded = [self.vocabulary.encode(line)[:length] for line in chosen]
        self._lengths = np.array([len(ids) for ids in encoded], np.int32)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._ids = np.concatenate([*encoded, np.zeros(length, np.int32)])
        self._inside = np.arange(length)

    def __len__(self) -> int:
        return len(self._lengths)

    def rows(self, which: Which) -> dict[str, Array]:
        lengths = self._lengths[which]
        ids = self._ids[self._starts[which][:, None] + self._inside]
        ids = np.where(self._inside < lengths[:, None], ids, 0).astype(np.int32)
        return {"ids": ids, "lengths": lengths.copy()}


def lines(
    files: Files, length: int, batch: int = 32, *, by: str = "character", **options: Any
) -> Loader:
    """The lines of text files that are not empty; see `Lines` and `Loader`."""
    return Loader(Lines(read_text(files).splitlines(), length, by), batch, **options)
