"""Tuned numbers of the native runtime: see `graphc.tuning` for what they have in common.

They become part of its object code, once for a process: GRAPHC_TUNING changes them, a block in a
program does not.
"""

from __future__ import annotations

from graphc.tuning import Tuning, number


# fmt: off
class NativeTuning(Tuning):
    """Values, the ends of their ranges, units, the case that judges them, what they trade."""

    # Waiting and waking.
    chunks_per_thread = number(2, 1, 64, "chunks", "pointwise",
        "a late thread leaves work for the others against calls")
    brief_spins = number(100, 1, 1 << 20, "turns", "pointwise",
        "a caller that spins against one that gives way on a busy machine")
    yield_every = number(200, 1, 1 << 20, "turns", "pointwise", "the same for workers")
    move_pause = number(1_000_000, 0, 1 << 40, "nanoseconds", "devices",
        "threads that leave a busy core against moving too often")
    stack_bytes = number(4096, 64, 1 << 30, "bytes", "train-lstm",
        "memory of a stack against growing it")
    least_patience = number(300_000, 0, 1 << 40, "nanoseconds", "call",
        "work done alone before workers that sleep are woken")
    most_patience = number(5_000_000, 0, 1 << 40, "nanoseconds", "call",
        "the same after they were of no use")
    stall = number(200_000, 0, 1 << 40, "nanoseconds", "pointwise",
        "workers sent away that cost so much more than they saved against doing without them")
    most_saved = number(20_000_000, 0, 1 << 40, "nanoseconds", "pointwise",
        "savings that make up for a worker that comes late: two slices of a processor")
    forgiven = number(1_000_000, 0, 1 << 40, "nanoseconds", "call",
        "idle time after which work done alone does not count: steps come one at a time")
    shortest_rest = number(10_000_000, 0, 1 << 40, "nanoseconds", "pointwise",
        "how long late workers are done without")
    longest_rest = number(1_000_000_000, 0, 1 << 40, "nanoseconds", "pointwise",
        "the same where they are late again and again")
    brief_wait = number(2000, 0, 1 << 30, "nanoseconds", "devices",
        "a message that comes soon against a core that is not given way")
    channel_spin = number(100_000, 0, 1 << 30, "nanoseconds", "devices",
        "a message at once against a core that is busy waiting")
    channel_spin_crowded = number(30_000, 0, 1 << 30, "nanoseconds", "devices",
        "the same where the core is shared with others")
    long_yield = number(50_000, 0, 1 << 30, "nanoseconds", "devices",
        "a core counts as shared if giving way takes longer")
    shy_time = number(100_000_000, 0, 1 << 40, "nanoseconds", "devices",
        "how long it counts as shared")
    clock_pauses = number(16, 1, 1024, "turns, a power of two", "devices",
        "messages at once against looks at the clock")
    link_piece = number(1 << 17, 64, 1 << 30, "bytes", "devices",
        "both processes copying at once against telling one another")
    link_stream = number(1 << 20, 64, 1 << 60, "bytes", "devices",
        "a message that lies in no core's cache against one that its sender's has to give up")
    link_nap = number(10_000_000, 1000, 999_999_999, "nanoseconds", "devices",
        "seeing that another process has ended against a core that is woken")
    turn_looks = number(1024, 1, 1 << 20, "turns", "devices",
        "waiting for a worker's turn against giving way")


tuned = NativeTuning("native")
