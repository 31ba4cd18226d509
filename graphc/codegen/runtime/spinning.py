"""How long a thread that waits for a message spins before it sleeps.

Most messages come within a microsecond.  Who spins longer gives way now and then, to threads of the
same program on the same core.  Where another program runs there, it takes a whole time slice (some
4 ms) each time: a yield that lasted long is not followed by another one for a while, in the whole
process, and waits park sooner.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import I1, I64, RELAXED, Global, Number, Writer, native
from graphc.codegen.runtime.system import give_way, now
from graphc.codegen.runtime.tuning import tuned

shy_until = Global("shy", I64, align=64)


@native(I1)
def spun_enough(f: Writer, begin: Number) -> None:
    """Give way to other threads, unless that took long lately; whether it is time to park."""
    asked = now(f)
    with f.when(asked - begin < tuned.brief_wait):
        f.give(0)
    with f.when(asked < shy_until(f).load(order=RELAXED)):
        f.give(asked - begin >= tuned.channel_spin_crowded)
    give_way(f)
    back = now(f)
    with f.when(back - asked > tuned.long_yield):
        shy_until(f).store(back + tuned.shy_time, RELAXED)
    f.give(back - begin >= tuned.channel_spin)
