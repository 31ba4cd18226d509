"""Outlines: how the values that a model of another library takes and gives are put together from
arrays: lists of them, None, and what is carried in arrays of another type."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.encoded_values import Carried, restored, rewrapped

ARRAY = "array"


def outline_of(value: Any, arrays: list[Any]) -> Any:
    """How a value is put together; its arrays are appended to a list."""
    if isinstance(value, list):
        return [outline_of(item, arrays) for item in value]
    if value is None:
        return None
    if isinstance(value, Carried):
        arrays.append(value.value)
        return value.form
    arrays.append(value)
    return ARRAY


def frozen(outline: Any) -> Any:
    """An outline as a key."""
    return tuple(map(frozen, outline)) if isinstance(outline, list) else outline


def together(outline: Any, arrays: list[Any]) -> list[Any]:
    """Values from their outlines, taking arrays from the front of a list."""

    def made(form: Any) -> Any:
        if isinstance(form, list):
            return [made(item) for item in form]
        if form is None:
            return None
        value = next(rest)
        if form == ARRAY:
            return value
        return restored(form, value) if isinstance(value, np.ndarray) else rewrapped(form, value)

    rest = iter(arrays)
    return [made(form) for form in outline]


def are_arrays(outline: list[Any]) -> bool:
    return all(form == ARRAY for form in outline)


def leaf_count(form: Any) -> int:
    if isinstance(form, list):
        return sum(map(leaf_count, form))
    return 0 if form is None else 1
