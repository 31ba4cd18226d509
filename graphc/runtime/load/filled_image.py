"""An image whose holes are filled: the numbers of one call where sizes are left open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from graphc.base.record import replace
from graphc.errors import GraphError
from graphc.runtime.load.program import Channel, HostCall, Image, Slot
from graphc.runtime.load.size_formulas import Formulas, Hole, Holes, value_of


def check_holes(image: Image, formulas: Formulas) -> None:
    """Raise ValueError for a hole that is none, and for an extent that no parameter has."""
    holes, most = image.holes or Holes(), len(formulas.formulas)
    spans = [(where, which, image.table.size) for where, which in holes.table]
    spans += [(where, which, image.words.size) for where, which in holes.words]
    spans += [(where, which, len(image.channels)) for where, which in holes.channels]
    for slots, found in ((image.params, holes.params), (image.results, holes.results)):
        for slot, axis, which in found:
            spans.append((axis, which, len(slots[slot].shape) if 0 <= slot < len(slots) else 0))
    calls = [(*call.operands, *call.results) for call in image.hosts.values()]
    for call, slot, axis, which in holes.hosts:
        parts = calls[call] if 0 <= call < len(calls) else ()
        spans.append((axis, which, len(parts[slot].shape) if 0 <= slot < len(parts) else 0))
    if not all(0 <= where < size and 0 <= which < most for where, which, size in spans):
        raise ValueError("a hole lies outside of what it is in")
    places = (holes.table, holes.words, holes.channels, holes.params, holes.results, holes.hosts)
    if any(len({hole[:-1] for hole in each}) != len(each) for each in places):
        raise ValueError("two holes in one place")
    if not all(-1 <= which < most for which in (holes.arena, holes.stacks)):
        raise ValueError((holes.arena, holes.stacks))


def check_sources(params: Sequence[Slot], formulas: Formulas) -> None:
    """Raise ValueError for a symbol or an extent that is read where no parameter has an axis."""
    places = [(source.param, source.axis) for source in formulas.sources]
    places += [(param, axis) for param, axis, _ in formulas.extents]
    for param, axis in places:
        if not (0 <= param < len(params) and 0 <= axis < len(params[param].shape)):
            raise ValueError((param, axis))


def check_params(image: Image) -> None:
    """Raise ValueError unless holes make the parameters what arrays of a call have to be."""
    formulas, holes = image.formulas, image.holes
    assert formulas is not None
    filled_with = {
        (slot, axis): formulas.formulas[which] for slot, axis, which in (holes or Holes()).params
    }
    wanted = {(param, axis): polynomial for param, axis, polynomial in formulas.extents}
    for param, slot in enumerate(image.params):
        for axis, extent in enumerate(slot.shape):
            made = filled_with.get((param, axis), ((extent, ()),))
            if wanted.get((param, axis)) != made:
                raise ValueError((param, axis))


def check_at_hand(image: Image) -> None:
    """Raise ValueError unless the image is what the formulas make of it for the sizes that its own
    parameters have: it holds the numbers of its first compilation.
    """
    formulas = image.formulas
    assert formulas is not None
    symbols = formulas.symbols_of([slot.shape for slot in image.params])
    if symbols is None:
        raise ValueError(image.params)
    made = filled(image, formulas.known(symbols))
    for before, after in zip(image.images, made.images, strict=True):
        arrays = (before.table, after.table), (before.words, after.words)
        if not all(map(np.array_equal, *zip(*arrays, strict=True))) or _told(before) != _told(
            after
        ):
            raise ValueError("a formula gives another number")


def _told(image: Image) -> list[object]:
    """What a hole may be in, but for words."""
    called = [(call.operands, call.results) for call in image.hosts.values()]
    return [image.params, image.results, image.arena_bytes, image.channels, called]


def filled(image: Image, values: Sequence[int]) -> Image:
    """The image for these unknowns."""
    formulas = image.formulas
    assert formulas is not None
    numbers = [value_of(polynomial, values) for polynomial in formulas.formulas]
    if any(not -(1 << 62) < number < 1 << 62 for number in numbers):
        raise GraphError("the sizes are beyond what a machine can count")
    others = tuple(_filled(other, numbers) for other in image.others)
    return replace(_filled(image, numbers), formulas=None, others=others)


def _filled(image: Image, numbers: Sequence[int]) -> Image:
    holes = image.holes
    if holes is None:
        return image
    table, words = image.table.copy(), image.words.copy()
    for array, places in ((table, holes.table), (words, holes.words)):
        if places:
            where, which = np.array(places, np.int64).T
            array[where] = np.array(numbers, np.int64)[which]
    return replace(
        image,
        table=table,
        words=words,
        params=_extended(image.params, holes.params, numbers),
        results=_extended(image.results, holes.results, numbers),
        arena_bytes=numbers[holes.arena] if holes.arena >= 0 else image.arena_bytes,
        channels=_carrying(image.channels, holes.channels, numbers),
        hosts=_called(image.hosts, holes.hosts, numbers) if holes.hosts else image.hosts,
        stack_bytes=_room(image, numbers),
        holes=None,
    )


def _room(image: Image, numbers: Sequence[int]) -> int:
    """What stacks may grow to: also who loads the image may limit them."""
    assert image.holes is not None
    which = image.holes.stacks
    return min(image.stack_bytes, numbers[which]) if which >= 0 else image.stack_bytes


def _called(
    hosts: Mapping[str, HostCall],
    holes: Sequence[tuple[int, int, int, int]],
    numbers: Sequence[int],
) -> dict[str, HostCall]:
    made = {}
    for number, (symbol, call) in enumerate(hosts.items()):
        own = [hole[1:] for hole in holes if hole[0] == number]
        slots, split = _extended((*call.operands, *call.results), own, numbers), len(call.operands)
        made[symbol] = replace(call, operands=slots[:split], results=slots[split:])
    return made


def _carrying(
    channels: Sequence[Channel], holes: Iterable[Hole], numbers: Sequence[int]
) -> tuple[Channel, ...]:
    made = list(channels)
    for channel, which in holes:
        made[channel] = replace(made[channel], nbytes=numbers[which])
    return tuple(made)


def _extended(
    slots: Sequence[Slot], holes: Iterable[tuple[int, int, int]], numbers: Sequence[int]
) -> tuple[Slot, ...]:
    made = list(slots)
    for slot, axis, which in holes:
        shape = list(made[slot].shape)
        shape[axis] = numbers[which]
        made[slot] = replace(made[slot], shape=tuple(shape))
    return tuple(made)
