"""Makes the native call entry of an executable: a builtin function that takes flat NumPy arrays.

The code is `graphc_entry` of the support object (see `graphc.codegen.runtime.emit_entry`).  It
reads the structs of arrays directly, so it is only used where they are as `graphc.seams.numpy`
says.  Elsewhere there is no context, and calls take the Python path.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from graphc.runtime.call.binding import Binding
from graphc.runtime.call.memory import LARGE, address_of
from graphc.runtime.load.layouts import ContextWords, RecordWords
from graphc.runtime.load.program import Image
from graphc.seams import numpy

MOST_FRAMES = 8


class Context(np.ndarray[Any, np.dtype[np.int64]]):
    """The int64 words the entry reads, and in `keep` what their addresses point to."""

    keep: Any


def make_context(
    image: Image, dtypes: Sequence[np.dtype[Any]], binding: Binding | None, keep: list[Any]
) -> Context | None:
    """The context of an executable (not ready yet), or None where the entry cannot be used.

    It makes results as NumPy does, so large ones are not for it.

    `dtypes` are those of params and results; `keep` lives as long as the context.
    """
    if not numpy.arrays_are_known() or any(slot.nbytes >= LARGE for slot in image.results):
        return None
    context = np.zeros(ContextWords.first_frame + MOST_FRAMES, np.int64).view(Context)
    slots = (*image.params, *image.results)
    donated = image.donated or (-1,) * len(image.results)
    shapes = [np.array(slot.shape, np.int64) for slot in slots]
    records = np.zeros((len(slots), len(RecordWords.fields)), np.int64)
    taken = [int(number in donated) for number in range(len(image.params))]
    for record, slot, dtype, shape, param in zip(
        records, slots, dtypes, shapes, (*taken, *donated)
    ):
        record[RecordWords.dtype], record[RecordWords.rank] = id(dtype), shape.size
        record[RecordWords.shape], record[RecordWords.size] = address_of(shape), slot.nbytes
        record[RecordWords.taken] = param
    homes = binding.records() if binding is not None else np.zeros(0, np.int64)
    no_wait = np.array([id(False)], np.int64)
    context[ContextWords.parameters] = len(image.params)
    context[ContextWords.results] = len(image.results)
    context[ContextWords.parameter_records] = address_of(records)
    context[ContextWords.result_records] = address_of(records[len(image.params) :])
    context[ContextWords.array_type] = id(np.ndarray)
    context[ContextWords.none] = id(None)
    context[ContextWords.new_array] = numpy.new_array()
    context[ContextWords.containers] = len(homes)
    context[ContextWords.homes] = address_of(homes)
    context[ContextWords.no_wait] = address_of(no_wait)
    context[ContextWords.true] = id(True)
    context[ContextWords.donates] = int(any(taken))
    if binding is not None:
        binding.pause = partial(_not_ready, weakref.ref(context))
    context.keep = (shapes, records, tuple(dtypes), homes, no_wait, binding, keep)
    return context


def _not_ready(context: weakref.ref[Context]) -> None:
    found = context()
    if found is not None:
        found[ContextWords.ready] = 0
