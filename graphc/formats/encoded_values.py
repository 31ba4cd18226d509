"""Values that graphs have no elements for, carried in arrays that they do have.

Narrow   int4 in i8, float8 in f32: every value is exact there
Text     strings as places in a list of words
Maps     one dictionary per row: the row, and the keys of all of them

A rule of the table gets them only if it asks; one that moves elements about gets the arrays.  The
form of such a value says how it is carried: `rewrapped(form, array)` is it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.limits import check_within
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]
Form = tuple[Any, ...]

CARRIED = {
    "int2": "int8",
    "int4": "int8",
    "uint2": "uint8",
    "uint4": "uint8",
    "float8_e4m3fn": "float32",
    "float8_e4m3fnuz": "float32",
    "float8_e5m2": "float32",
    "float8_e5m2fnuz": "float32",
    "float4_e2m1fn": "float32",
    "float8_e8m0fnu": "float32",
}
STRINGS = ("string", "object")  # what element types of strings are called


class UnnamedWords(Exception):
    """Tracing needs to know strings that no constant of the file names."""


@record(frozen=True)
class Narrow:
    """A value of a narrow element type, carried in a wider one."""

    value: Any
    element: str

    @property
    def form(self) -> Form:
        return "narrow", self.element


@record(frozen=True)
class Text:
    """Strings: integers (traced, or an array) that are places in `words`.

    A word that is None stands for every string that the file does not name.
    """

    value: Any
    words: tuple[str | None, ...]

    @property
    def form(self) -> Form:
        return "text", self.words

    def spelled(self) -> tuple[str, ...]:
        """The words. Raises UnnamedWords where one is only known to be none of the others."""
        if None in self.words:
            raise UnnamedWords
        return self.words  # type: ignore[return-value]

    def through(self, table: Sequence[Any] | Array, kind: Any) -> Any:
        """What a table with an entry per word says of each string."""
        return f.take(np.asarray(table, kind), self.value, axis=0)


@record(frozen=True)
class Maps:
    """A list of dictionaries: row k of a matrix gives the values of the k-th."""

    value: Any
    keys: tuple[Any, ...]

    @property
    def form(self) -> Form:
        return "maps", self.keys


Carried = Narrow | Text | Maps


def carried(array: Any) -> Any:
    """An array of the file as a value: narrow elements are widened, strings become places."""
    if array.dtype == object:
        return text_of(array)
    name = str(array.dtype)
    wide = CARRIED.get(name)
    return array if wide is None else Narrow(array.astype(wide), name)


def text_of(array: Any, words: tuple[str | None, ...] = ()) -> Text:
    """An array of strings as places in `words`, whose last is None, or in the words that it has."""
    texts = np.asarray(array, object).reshape(-1).tolist()
    if set(map(type, texts)) != {str}:
        texts = [_spelling(item) for item in texts]
    known = words or tuple(sorted(set(texts)))
    check_within("folded_elements", len(known), f"{len(known)} different strings")
    # The words of a model are the same in every call, those of fed texts seldom.
    place = _places(known) if words else {word: k for k, word in enumerate(known)}
    other = len(known) - 1
    codes = np.array([place.get(text, other) for text in texts], np.int64)
    return Text(codes.reshape(np.shape(array)), known)


@lru_cache(64)
def _places(words: tuple[str | None, ...]) -> dict[str | None, int]:
    return {word: k for k, word in enumerate(words)}


def _spelling(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    if isinstance(item, str):
        return str(item)
    raise GraphError(f"expected strings, got {type(item).__name__}")


def rewrapped(form: Form, value: Any) -> Carried:
    """A value as its form says that it is carried."""
    kinds: dict[str, Callable[[Any, Any], Carried]] = {"narrow": Narrow, "text": Text, "maps": Maps}
    return kinds[form[0]](value, form[1])


@lru_cache(64)
def _spelled(words: tuple[str, ...]) -> Array:
    return np.array([*words, ""], object)


def restored(form: Form, array: Array) -> Any:
    """What a user gets for a carried array: its own elements again."""
    kind, extra = form
    if kind == "narrow":
        return array.astype(np.dtype(getattr(ml_dtypes, extra)))
    if kind == "text":
        return np.asarray(_spelled(extra)[array], object)
    return [dict(zip(extra, row)) for row in array.reshape(-1, len(extra)).tolist()]


def carriers(values: Sequence[Any]) -> Iterator[Carried]:
    """The carried values among some, and in the sequences among them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from carriers(value)
        elif isinstance(value, Carried):
            yield value


def common_form(found: Sequence[Carried]) -> Form:
    """The form in which all of them can be carried. Raises GraphError where there is none."""
    forms = {value.form for value in found}
    if all(isinstance(value, Text) for value in found):
        words = dict.fromkeys(word for _, words in sorted(forms, key=repr) for word in words)
        check_within("folded_elements", len(words), f"{len(words)} different strings")
        return "text", tuple(words)
    if len(forms) > 1:
        raise GraphError("its values have different element types")
    return forms.pop()


def laid_bare(value: Any, form: Form) -> Any:
    """The array of a carried value, as that form has it; any other value as it is."""
    if isinstance(value, list | tuple):
        return type(value)(laid_bare(item, form) for item in value)
    if isinstance(value, Text) and value.words != form[1]:
        place = {word: k for k, word in enumerate(form[1])}
        return value.through([place[word] for word in value.words], np.int64)
    return value.value if isinstance(value, Carried) else value


def wrapped(made: Any, form: Form) -> Any:
    """Results of moving elements of that form."""
    if isinstance(made, list | tuple):
        return type(made)(wrapped(item, form) for item in made)
    return rewrapped(form, made)
