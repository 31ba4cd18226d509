"""What the native call entry asks before it runs."""

from __future__ import annotations

from graphc.codegen.llvm.writer import I1, Number, Pointer, Struct, Writer, native
from graphc.codegen.runtime.python_api import call, drop
from graphc.runtime.load.layouts import ContainerWords, ContextWords, HomeWords, RecordWords


@native(I1)
def apart(
    f: Writer, records: Struct[RecordWords], bases: Pointer, count: Number, p: Number
) -> None:
    """Whether parameter p overlaps no other where one of the two is donated.

    Any two pointers of a frame have passed this before, so only one that has changed is compared;
    null overlaps nothing.
    """
    begin, taken = bases[p], records[p].taken
    end = begin + records[p].size
    with f.loop(0, count) as q:
        other = bases[q]
        counts = ((taken | records[q].taken) != 0) & (p != q) & (other != 0)
        overlaps = begin.below(other + records[q].size) & other.below(end)
        with f.when(counts & overlaps):
            f.give(0)
    f.give(1)


@native(I1)
def hold(f: Writer, context: Struct[ContextWords]) -> None:
    """Enter the containers of the variables, as a reader or as the only writer; whether that was
    possible.  The GIL is held: nobody else looks at the words of a container meanwhile.
    """
    with f.loop(0, context.containers) as k:
        home = context.homes.to(HomeWords)[k]
        container = home.container.to(ContainerWords)
        can_enter = f.local(container.closed == 0)
        with f.when(can_enter):
            with f.when(home.acquire.is_null):
                container.readers = container.readers + 1
            with f.otherwise():
                can_enter.set(container.readers == 0)
                with f.when(can_enter):
                    said = call(f, home.acquire, context.no_wait, 1, f.null())
                    can_enter.set(said == context.true)
                    drop(f, said)
                    with f.when(can_enter):
                        container.closed = 1
        with f.when(can_enter == 0):
            leave(f, context, k)
            f.give(0)
    f.give(1)


@native()
def leave(f: Writer, context: Struct[ContextWords], count: Number) -> None:
    """Leave the first containers again."""
    with f.loop(0, count) as k:
        home = context.homes.to(HomeWords)[k]
        container = home.container.to(ContainerWords)
        with f.when(home.release.is_null):
            container.readers = container.readers - 1
        with f.otherwise():
            container.closed = 0
            drop(f, call(f, home.release, f.null(), 0, f.null()))
