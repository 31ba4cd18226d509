"""Tuned numbers of the loop language: see `graphc.tuning` for what they have in common."""

from __future__ import annotations

from graphc.tuning import Tuning, number


# fmt: off
class LoopsTuning(Tuning):
    """Values, the ends of their ranges, units, the case that judges them, what they trade."""

    # Loops: unrolling, partial sums, looks at the cancel flag (facts.py).
    partial_sum = number(1024, 32, 1 << 16, "f64 terms", "sum-f64",
        "accuracy of long sums against a store for each part")
    partial_fan = number(32, 2, 1024, "partial sums", "sum-f64",
        "accuracy of very long sums against one more level")
    unrolled_turns = number(8, 0, 64, "iterations", "small-loops",
        "no loop around short bodies against code to compile")
    unrolled_in_vector = number(96, 0, 512, "statements", "small-loops",
        "vectors over an outer loop against code to compile")
    unrolled_outside = number(16, 0, 256, "statements", "small-loops",
        "the same outside of a vector loop")
    f32_terms = number(16, 1, 64, "f32 terms", "softmax",
        "accuracy of short sums against a wider register")
    f32_chunk = number(256, 32, 1 << 13, "f32 terms", "softmax",
        "speed of f32 lanes against accuracy: their total goes to f64")
    chunk_step = number(32, 1, 64, "f32 terms", "softmax",
        "chunks of equal length against the number of lengths tried")
    thread_gap = number(1088, 0, 1 << 20, "bytes", "fft",
        "lines that are fetched ahead and lie between the scratch of two threads against memory")
    near_table = number(1 << 19, 0, 1 << 40, "bytes", "small-loops",
        "single loads against gathers, of which more are under way, where these are slow")
    look_work = number(1 << 25, 1 << 10, 1 << 40, "scalar operations", "gemm-1024",
        "how soon a run is cancelled against looks at the flag")
    call_work = number(20, 1, 1000, "scalar operations", "gemm-1024",
        "what a math function counts for between two looks")
    brief_work = number(1 << 22, 0, 1 << 40, "statements", "compile",
        "compile time: less work is not searched for loops that look")
    later_growth = number(16, 1, 1 << 20, "times the first size", "gemm-1024",
        "how soon a run of larger arrays is cancelled against looks at the flag")
    look_step = number(64, 1, 1 << 12, "iterations", "gemm-1024",
        "whole vectors in what is cut for a look")


tuned = LoopsTuning("loops")
