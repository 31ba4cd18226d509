"""Tuned numbers of code for GPUs: see `graphc.tuning` for what they have in common.

They were set on the chip that `processors` describes; `make tune` leaves them alone where there
is none.
"""

from __future__ import annotations

from graphc.tuning import Tuning, number


# fmt: off
class GpuTuning(Tuning):
    """Values, the ends of their ranges, units, the case that judges them, what they trade."""

    # Loop nests on a GPU.
    lane_iterations = number(4, 1, 1024, "iterations", "gpu",
        "lanes for a vector loop against one thread for it")
    local_elements = number(64, 0, 1 << 12, "elements", "gpu",
        "scratch in a thread's own memory against memory for all")
    line_block = number(1024, 4, 1 << 20, "elements of a unit", "gpu",
        "work per block against blocks that fill the chip")
    fold_columns = number(256, 4, 1 << 20, "columns of a unit", "gpu", "one column per lane")
    staged_bytes = number(16 << 10, 0, 48 << 10, "bytes of a row", "gpu",
        "rows in shared memory against blocks on a processor")
    row_part = number(8, 1, 1 << 12, "elements per thread", "gpu",
        "a row shared by blocks against a second launch")
    column_part = number(16, 1, 1 << 12, "rows", "gpu", "the same for a column")

    written_turns = number(8, 1, 64, "turns of a lane", "gpu",
        "reads that are on their way at once against registers")
    held_elements = number(48, 0, 128, "elements of a lane", "gpu",
        "rows that passes read once against blocks on a processor")
    early_elements = number(24, 0, 128, "elements of a lane", "gpu",
        "reads before all writes of a block of elements against registers")
    line_turns = number(4, 1, 8, "turns of a lane", "gpu", "the same")
    line_units = number(4096, 1, 1 << 20, "units", "gpu", "blocks that fill the chip against turns")
    turned_side = number(32, 4, 64, "elements of a tile's side, of 4 bytes or more", "gpu",
        "whole sectors of rows and columns against blocks on a processor")
    turned_bytes = number(24 << 10, 0, 48 << 10, "bytes of tiles", "gpu", "the same")

    kernel_rounds = number(1 << 22, 0, 1 << 40, "rounds", "gpu",
        "a scan as one kernel, which nothing stops, against a launch in each round")
    rounds_ahead = number(8, 1, 64, "rounds", "gpu",
        "slices loaded ahead against registers")
    round_nodes = number(128, 1, 1 << 14, "operations", "gpu", "the same against code to compile")

    # Contractions on a GPU.
    tiled_sum = number(5, 1, 1 << 20, "products of a sum", "gpu",
        "tiles against one thread for a sum")
    resident_threads = number(512, 32, 2048, "threads of a processor", "gpu",
        "registers per thread against threads")
    resident_sums = number(64, 1, 256, "sums of a thread", "gpu",
        "two blocks on a processor against all its registers for one")
    copied_sums = number(32, 1, 256, "sums of a thread", "gpu",
        "the same where a thread also holds places of copies")
    processor_shared = number(227 << 10, 48 << 10, 1 << 20, "bytes of a processor", "gpu",
        "registers per thread against blocks that it has no shared memory for")
    join_threads = number(256, 32, 1024, "threads", "gpu", "the launch that adds up parts of sums")
    join_blocks = number(1024, 1, 1 << 16, "blocks", "gpu", "the same")
    written_steps = number(512, 1, 1 << 14, "multiply-adds of a thread", "gpu",
        "steps written one by one against code to compile")
    copied_steps = number(2048, 1, 1 << 14, "multiply-adds of a thread", "gpu",
        "the same where nothing passes through registers beside them")
    tile_band = number(8, 1, 64, "tiles", "gpu",
        "tiles above each other that share columns of B in the cache")
    thin_rows = number(8, 0, 16, "rows", "gpu", "sums by whole warps against tiles")
    thin_groups = number(4, 0, 16, "rows", "gpu", "the same where groups of warps multiply")
    thin_sums = number(16, 1, 64, "sums of a thread", "gpu", "operands read once against registers")
    thin_steps = number(16, 1, 1 << 20, "steps of k", "gpu", "lanes that share a sum")
    window_steps = number(64, 1, 1 << 12, "products of a sum", "gpu",
        "the same for windows of few channels")
    processors = number(132, 1, 4096, "processors of the chip that tiles are chosen for", "gpu",
        "blocks that fill the chip")
    processor_lanes = number(128, 1, 1 << 16, "multiply-adds of f32 per cycle", "gpu",
        "what tiles cost")
    tensor_lanes = number(800, 1, 1 << 16, "multiply-adds of f16 per cycle", "gpu",
        "what tiles cost")
    group_lanes = number(2048, 1, 1 << 16, "the same by groups of four warps", "gpu",
        "what tiles cost")
    start_cycles = number(4000, 0, 1 << 20, "cycles before the first and after the last", "gpu",
        "what tiles of groups cost")
    finish_cycles = number(70, 1, 1 << 12, "cycles for a sum of a thread", "gpu",
        "what tiles of groups cost")
    busy_threads = number(256, 1, 2048, "threads of a processor", "gpu",
        "threads that keep its multiply-adds going")
    processor_bytes = number(16, 1, 1 << 12, "bytes per cycle", "gpu", "what parts of sums cost")
    launch_cycles = number(4000, 0, 1 << 24, "cycles", "gpu",
        "a second launch against sums that leave processors idle")
    splits = number((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128),
        (1,), (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128), "parts of a sum", "gpu",
        "parts that are tried")
    scattered_sums = number(32, 16, 256, "sums of a thread", "gpu",
        "tiles whose threads read element by element")
    split_steps = number(128, 1, 1 << 20, "steps of k", "gpu",
        "a part of a split sum against a second launch")
    attention_blocks = number(4, 1, 64, "blocks of a processor", "gpu",
        "keys shared by blocks against a second launch")
    attention_rounds = number(10, 1, 1 << 10, "blocks of a processor", "gpu",
        "rows that share keys against processors that wait for the last ones")
    attention_pieces = number(4, 1, 1 << 10, "tiles of keys", "gpu", "the same")
    young_objects = number(50_000, 700, 1 << 20, "objects", "gpu",
        "compile time: Numba makes and drops so many between two collections")


tuned = GpuTuning("gpu")
