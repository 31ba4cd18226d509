"""Tuned numbers of the ops: see `graphc.tuning` for what they have in common.

No type rule reads them: a graph means the same whatever they are.
"""

from __future__ import annotations

from graphc.tuning import Tuning, number


# fmt: off
class OpsTuning(Tuning):
    """Values, the ends of their ranges, units, the case that judges them, what they trade."""

    # Neural networks (nn/).
    resample_taps = number(8, 0, 64, "neighbours", "images",
        "neighbours read one by one against a product with a matrix")
    pool_unrolled = number(64, 1, 512, "elements of a window", "pool",
        "a window written out against pools along one axis after the other")
    winograd_strip = number(256, 1, 1 << 20, "tiles", "winograd",
        "transforms that stay near against rows that are read again")
    gradient_band = number(256, 1, 1 << 20, "rows", "train-transformer",
        "scores that stay near against reading k and v again")
    gradient_band_causal = number(128, 1, 1 << 20, "rows", "train-transformer",
        "the same where that leaves out what none of them sees")
    gradient_bands = number(8, 1, 64, "bands", "train-transformer",
        "the same against kernels to compile")
    score_band = number(128, 1, 1 << 20, "rows", "attention",
        "what no row of a band sees is left out, against kernels of its own")
    score_bands = number(4, 1, 64, "bands", "attention", "the same against kernels to compile")
    lane_matrices = number(32, 2, 1 << 20, "matrices", "batch",
        "small matrices one in each lane against one after another")
    scattered_row = number(64, 2, 1 << 20, "elements", "scatter",
        "rows shared by threads, each of which goes over all positions, against one thread")
    scattered_share = number(8, 1, 1 << 20, "rows for each position", "scatter",
        "the same: what is copied against what each thread looks at")
    weight_sums = number(64, 0, 512, "weights of a group", "train-conv",
        "weights summed up one by one against a contraction")
    window_strip_of_pixels = number(1 << 16, 1, 1 << 30, "elements", "bf16",
        "rows that are copied once for several results, and stay near")
    window_strip = number(4096, 1, 1 << 20, "elements", "depthwise",
        "strips that stay near against rows that are read again")
    window_lines = number(1 << 15, 1, 1 << 20, "elements", "depthwise",
        "the same for channels side by side")
    window_columns = number(8, 1, 64, "columns", "depthwise",
        "sums of a row in registers against weights that are read again")
    lane_row = number(8, 0, 1 << 20, "results, for each step of a window", "depthwise",
        "channels side by side: rows that are so short against turning them")
    lane_shifts = number(4, 0, 1 << 12, "products of a result", "depthwise",
        "the same: so many products of vectors that begin between two lines of the cache")
    window_terms = number(144, 1, 1 << 12, "products in the inner loop", "depthwise",
        "outputs summed together against registers and code")

    # The reference interpreter (reference/).
    long_call = number(1 << 16, 1, 1 << 40, "elements", "interrupt",
        "how soon Ctrl-C ends a call of NumPy against a thread for it")
    listens = number(0.05, 1e-3, 1.0, "seconds", "interrupt",
        "the same: the time between two looks for an interrupt")

    # Sorting (sort/).
    listed = number(64, 1, 1024, "elements", "topk",
        "insertion into the list of the best against a full sort")
    network_row = number(4096, 0, 1 << 14, "keys in a row", "sort-rows",
        "many rows sorted side by side against radix passes: they must stay near")
    network_row_narrow = number(64, 0, 1 << 14, "keys in a row", "sort-rows",
        "the same for 8 and 16 bits, which take a pass or two")
    compared_values = number(64, 0, 1 << 20, "values", "isin",
        "a comparison with each of them against a sort and searches")
    insertion_row = number(32, 0, 1024, "keys in a row", "sort-one",
        "insertion against radix passes")

    # Reductions (reduce/).
    place_block = number(1024, 16, 1 << 20, "elements", "argmax",
        "a block that is looked through again against extremes of blocks")
    place_blocks = number(64, 1, 1 << 20, "blocks", "argmax",
        "one sweep over memory against kernels of a short row")

    # Linear algebra (linalg/), running totals, gradients.
    solved_alone = number(15, 0, 64, "right sides", "solve",
        "right sides one by one against blocks of them")
    alone_elements = number(8192, 0, 9215, "elements of a matrix", "eigenvalues",
        "a call by native code alone against routines that keep to the thread that calls them")
    panel = number(16, 4, 256, "columns", "solve",
        "a panel that stays near against products of few terms")
    product_block = number(256, 16, 1 << 20, "columns", "solve",
        "the part on the right that stays in the first cache")
    root_matrix = number(4, 1, 512, "extent", "fft",
        "one product with a matrix against two with smaller ones")
    root_factor = number(64, 2, 512, "extent", "fft",
        "large matrices of a longer transform against more of them")
    light_node = number(4.0, 0.0, 1e9, "operations per element", "train-lstm",
        "computing again in the backward pass against a store and a load")
    running_lanes = number(1024, 1, 1 << 20, "totals", "cumsum",
        "totals that advance together, in the first cache, against short loops")
    running_rows = number(4, 1, 32, "rows", "cumsum-rows",
        "rows in turn: each waits for its last addition")
    running_short = number(8, 0, 1 << 20, "steps", "cumsum-rows",
        "the same: rows of so few steps do not wait for one another")


tuned = OpsTuning("ops")
