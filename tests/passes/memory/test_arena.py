"""Blocks that are taken and given back: those in use at a time lie apart, whichever arena it is."""

from __future__ import annotations

import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from graphc.passes.memory.arena import ALIGNMENT, Arena, Centred
from graphc.tuning import chosen


@pytest.mark.parametrize("kind", [Arena, Centred])
@examples(25)
@given(data=st.data())
def test_blocks_in_use_lie_apart(kind: type[Arena], data: st.DataObject) -> None:
    arena = kind()
    live: list[tuple[int, int, int]] = []  # number, bytes, since when
    ever: list[tuple[int, int, int, int]] = []  # and until when
    sizes = st.integers(1, 40).map(lambda count: count * ALIGNMENT)
    with chosen({"passes.slot_ratio": data.draw(st.sampled_from([1, 4, 1 << 20]))}):
        for step in range(data.draw(st.integers(1, 40))):
            if live and data.draw(st.booleans()):
                number, nbytes, since = live.pop(data.draw(st.integers(0, len(live) - 1)))
                arena.give(number, nbytes, data.draw(st.integers(0, 7)))
                ever.append((number, nbytes, since, step))
                continue
            if data.draw(st.integers(0, 9)) == 0:
                arena.settle(data.draw(st.integers(0, 7)))
            nbytes, may = data.draw(sizes), data.draw(st.booleans())
            live.append((arena.take(nbytes, reuse=lambda may=may: may), nbytes, step))
    at = arena.places() if isinstance(arena, Centred) else {}
    ever += [(*block, 1000) for block in live]
    blocks = [(at.get(number, number), *rest) for number, *rest in ever]
    for k, (start, nbytes, since, end) in enumerate(blocks):
        assert start % ALIGNMENT == 0
        for other, size, begun, ended in blocks[:k]:
            if since < ended and begun < end:
                assert start + nbytes <= other or other + size <= start
    if isinstance(arena, Centred):
        assert max((start + nbytes for start, nbytes, *_ in blocks), default=0) <= sum(arena.sizes)


def test_a_slot_waits_for_the_messages_of_its_last_user() -> None:
    arena = Centred()
    first = arena.take(640)
    arena.give(first, 640, messages=3)
    assert len({arena.take(640, messages=1), arena.take(640, messages=2)}) == 2
    assert arena.sizes == [640] * 3
    arena.take(640, messages=7)
    assert arena.sizes == [640] * 3


def test_halves_of_values_lie_in_the_same_places() -> None:
    arena, middles = Centred(), set()
    for nbytes in (256, 1024, 512, 896):
        number = arena.take(nbytes)
        arena.give(number, nbytes)
    for number, (_, nbytes) in arena.blocks.items():
        middles.add(arena.places()[number] + nbytes // 2)
    assert len(arena.sizes) == 1
    assert max(middles) - min(middles) < ALIGNMENT
