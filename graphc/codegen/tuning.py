"""Tuned numbers of code for CPUs: see `graphc.tuning` for what they have in common.

Numbers in caches are multiplied by what the machine's caches hold (gemm/hardware.py), so that
they fit any.
"""

from __future__ import annotations

from graphc.tuning import Tuning, number


# fmt: off
class CodegenTuning(Tuning):
    """Values, the ends of their ranges, units, the case that judges them, what they trade."""

    # Contractions: routes, blocks and units (gemm/).
    grain_work = number(1 << 18, 1, 1 << 40, "multiply-adds", "gemm-64",
        "a thread woken against doing it alone")
    unit_work = number(1 << 20, 1, 1 << 40, "multiply-adds", "gemm-256",
        "work shared by threads against copies made by each")
    long_unit = number(1 << 32, 1, 1 << 50, "multiply-adds", "gemm-1024",
        "how soon a run is cancelled against units")
    long_look = number(1 << 30, 1, 1 << 50, "multiply-adds", "wide",
        "the same: a block of rows between two looks at the cancel flag")
    long_rows = number(512, 1, 1 << 20, "rows", "gemm-1024",
        "the same: units of more work have so many rows")
    vector_columns = number(4096, 1, 1 << 30, "columns", "matvec",
        "sums that stay near against starting rows of B again")
    dot_rows = number(8, 0, 64, "rows", "thin",
        "dot products one by one against a packed copy of B")
    dot_rows_of_quads = number(2, 0, 64, "rows", "thin",
        "the same where tiles multiply four numbers at once")
    dot_tile_rows = number(16, 0, 64, "rows", "thin",
        "dot products in tiles against a packed copy of B contiguous in k")
    few_rows = number(3, 0, 64, "rows", "matvec",
        "whole rows of B added up, where these lie pages apart, against tiles")
    set_share = number(128, 1, 1 << 20, "of the second level", "gemm-1024",
        "a copy of A against rows that evict each other")
    few_tiles = number(12, 0, 1 << 20, "row tiles", "gemm-256",
        "B read in place against a packed copy")
    least_tile = number(12, 2, 32, "rows of a register tile", "gemm-1024",
        "lower tiles against a copy of A")
    even_tile = number(8, 2, 32, "rows of a register tile", "gemm-256",
        "tiles of one height, which are less to compile, against a higher one and what is left")
    open_tile = number(10, 2, 32, "rows of a register tile", "open-rows",
        "tiles of all heights, which are less to compile, against higher ones")
    shallow_sum = number(64, 0, 1 << 20, "steps of k", "outer",
        "storing C row by row where that is what takes time")
    wide_row = number(8, 1, 1 << 20, "tiles", "outer", "the same: rows of so many tiles")
    some_tiles = number(9, 0, 1 << 20, "row tiles", "narrow",
        "panels of one cache line packed early: none fetches its neighbour")
    long_sum = number(128, 0, 1 << 20, "steps of k", "narrow",
        "the same: sums that are long enough")
    crowded_tiles = number(2, 0, 1 << 20, "row tiles", "narrow",
        "the same where the rows of a panel evict each other from the first level")
    lane_columns = number(96, 1, 1 << 30, "columns", "conv",
        "windows read in place against copies: of all images that share weights in lanes")
    lane_rows = number(2, 1, 1 << 20, "columns for each row in lanes", "conv",
        "the same where rows are few, and so is what is copied of them")
    narrow_lanes = number(19, 0, 1 << 10, "quarters of a row", "conv",
        "the same where the last rows are one vector: tiles that fetch a number for each product")
    half_lanes = number(28, 0, 1 << 10, "quarters of a row", "conv",
        "the same where they are half of one")
    near_windows = number(1 << 20, 0, 1 << 40, "elements", "conv",
        "the same: copies, which fetch in advance, of images that come from far away")
    window_share = number(4, 1, 1 << 20, "windows", "bf16",
        "windows of pairs read in place, so many of them in the second level, against copies")
    window_rows = number(9, 0, 1 << 20, "rows", "conv",
        "the same: rows (or columns) that would be multiplied while as many elements are copied")
    turned_steps = number(7, 0, 1 << 20, "steps of k", "conv",
        "the same: against sums in lanes that are turned")
    late_share = number(2.0, 0.0, 1e6, "second-level caches", "gemm-1024",
        "how much of B is packed at once by the unit that reads it")
    read_again = number(4, 1, 1 << 20, "times", "gemm-1024",
        "an A in place read again against more of B packed at once")
    deepest_block = number(512, 64, 1 << 16, "steps of k", "gemm-1024",
        "panels in the first cache against sums stored and loaded again")
    deepest_stream = number(4096, 64, 1 << 16, "steps of k", "mlp-1",
        "few rows times panels packed ahead, as these lie, against rows that leave a cache")
    tile_columns = number(512, 1, 1 << 20, "columns", "transformer",
        "a tile of sums that stays near against reading A again")
    tile_share = number(3, 1, 1 << 20, "part of the second level", "minilm",
        "the same for whole rows")
    unit_overhead = number(1 << 12, 1, 1 << 30, "multiply-adds", "gemm-64",
        "what starting a unit costs")
    read_work = number(4, 0, 1 << 20, "multiply-adds", "gemm-256",
        "what an element from the third level costs")
    copy_work = number(8, 0, 1 << 20, "multiply-adds", "gemm-256", "what copying an element costs")
    foreign_work = number(16, 0, 1 << 20, "multiply-adds", "conv",
        "what an element that another thread made costs more")
    store_work = number(16, 0, 1 << 20, "multiply-adds", "gemm-64",
        "what storing an element of the result costs")
    row_work = number(64, 0, 1 << 20, "multiply-adds", "matvec",
        "what starting at another row of B costs")
    many_batches = number(8, 1, 1 << 20, "matrices per thread", "batch",
        "batches alone shared among threads against cut matrices")
    late_gain = number(1 / 32, 0.0, 1e6, "of the work", "gemm-256",
        "two calls a thread, so that a late one leaves some, against padding")
    swap_ratio = number(4, 1, 1 << 20, "times", "thin",
        "A and B change places where few rows meet many columns")
    swap_panels = number(2, 1, 1 << 20, "times", "small-images",
        "the same where rows far apart could be panels packed ahead")
    across_steps = number(6, 0, 1 << 20, "steps of k", "packed-rows",
        "the same: empty lanes against an epilogue that stores across")
    across_steps_of_bytes = number(24, 0, 1 << 20, "steps of four of k", "packed-bytes",
        "the same where bytes are multiplied, and stored more often than not")
    scattered_steps = number(144, 0, 1 << 20, "steps of k", "packed-sums",
        "the same: against sums that are stored across one by one")
    window_steps = number(40, 0, 1 << 20, "steps of k", "packed-windows",
        "the same: windows as rows, read in place, against those that are copied or turned")
    window_gain = number(1.15, 1.0, 1e9, "times", "packed-windows",
        "the same: empty lanes against windows as rows that are copied, too")
    turned_run = number(8, 1, 1 << 30, "rows", "packed-sums",
        "finished columns turned to rows, where C has those together, against storing them across")
    turned_sum = number(48, 1, 1 << 20, "steps of k", "packed-sums",
        "the same: sums that are long enough")
    swap_sum = number(128, 1, 1 << 20, "steps of k", "thin", "the same: sums that are long enough")
    known_units = number(64, 1, 1 << 20, "units", "compile",
        "fewer heights of tiles to compile against finding which")
    brisk_products = number(32, 1, 1 << 20, "products", "batch",
        "the walk optimised against compile time")
    brisk_work = number(32**3, 0, 1 << 40, "multiply-adds", "batch",
        "the same: products that are so small")
    brisk_sum = number(64, 0, 1 << 20, "steps of k", "outer",
        "the same: tiles of sums that are so short")
    brisk_tiles = number(1024, 1, 1 << 40, "tiles", "outer", "the same: so many of them")
    transpose_ahead = number(256, 0, 4096, "bytes", "gemm-1024",
        "many streams fetched in advance: hardware follows fewer")
    fetched_sum = number(96, 0, 1 << 20, "steps of k", "gemm-256",
        "C fetched while a tile runs: it must last long enough")
    far_result = number(2.0, 0.0, 1e6, "second-level caches", "conv",
        "a C that comes from far away, which is fetched earlier")
    far_sum = number(8, 0, 1 << 20, "steps of k", "conv", "the same: sums that last long enough")
    rows_ahead = number(32, 0, 1024, "rows of B", "mlp-128",
        "rows fetched in advance by a tile that makes a panel of them")
    row_group = number(6, 1, 16, "rows of B", "matvec", "rows added up together against registers")
    packed_ahead_rows = number(2, 1, 1 << 20, "rows", "mlp-1",
        "constants packed ahead: a single row gains less from them")
    packed_ahead_share = number(0.5, 0.0, 1e9, "second-level caches", "mlp-1",
        "the same: what is read from far away gains all the same")
    packed_ahead_bytes = number(4096, 0, 1 << 40, "bytes", "mlp-1",
        "the same: less is not worth a step of its own")

    # Loop nests (lowering/).
    grain_bytes = number(1 << 16, 1, 1 << 40, "bytes of the widest operand", "pointwise",
        "a thread woken against doing it alone")
    element_flops = number(8, 1, 1 << 20, "operations per element", "pointwise",
        "work that takes as long as moving an element")
    epilogue_shortest = number(9, 1, 1 << 20, "elements", "minilm",
        "rows finished in the tile against a kernel of their own")
    epilogue_longest = number(1024, 0, 1 << 20, "elements", "minilm",
        "the same: of longer rows a tile has too few")
    epilogue_rows = number(128, 1, 1 << 20, "rows", "minilm",
        "the same: enough to share among threads")
    epilogue_operand = number(1 << 17, 0, 1 << 40, "elements", "minilm",
        "the same: the operand that every tile reads must stay near")
    concat_sections = number(12, 0, 64, "sections", "concat",
        "a loop for each section against code to compile")
    loop_versions = number(8, 1, 64, "versions", "concat",
        "a loop for each answer to what does not change in it against code to compile")
    concat_pieces = number(32, 2, 128, "pieces", "concat",
        "a concat as copies against code to compile")
    row_block = number(4096, 64, 1 << 30, "elements", "pointwise",
        "units of a long loop: threads share them evenly against calls")
    staged_flops = number(8.0, 0.0, 1e9, "operations per element", "softmax",
        "a value kept for the next pass over a row against computing it again")
    staged_row = number(1 << 16, 0, 1 << 20, "elements", "softmax",
        "the same: a longer row leaves the cache")
    far_share = number(3 / 8, 0.0, 1e9, "third-level caches", "layernorm",
        "rows asked for in advance against the instructions that ask")
    strip = number(64, 16, 4096, "elements", "layernorm",
        "the same: more between two askings get lost")
    ahead_in = number(8192, 0, 1 << 20, "bytes", "layernorm",
        "how far ahead operands are asked for")
    ahead_out = number(4096, 0, 1 << 20, "bytes", "layernorm",
        "how far ahead results are asked for")
    pairs_least = number(16, 1, 1 << 20, "rows", "distances",
        "rows turned into lanes against those that are turned in vain")
    pairs_rows = number(256, 8, 1 << 20, "rows", "distances",
        "rows turned once for so many others against units for threads")
    pair_group = number(4, 1, 8, "rows", "distances",
        "rows at a time that share what is loaded of the others against registers")
    pair_vectors = number(4, 2, 8, "vectors", "distances",
        "rows in lanes at a time; half as many where registers are few")
    pair_steps = number(16, 1, 64, "steps of k", "distances",
        "steps written out against code to compile")
    pair_strip = number(16, 1, 64, "elements", "distances",
        "elements of a row turned at a time: whole cache lines against code to compile")
    pair_narrow = number(256, 0, 1 << 12, "terms", "distances",
        "sums without a wider type against accuracy")
    tall_vector = number(16, 4, 64, "elements", "sum-tall",
        "whole rows in a vector, of which a multiple holds some")
    tall_lanes = number(32, 4, 256, "elements", "sum-tall", "enough sums under way")
    tall_bytes = number(128, 8, 4096, "bytes", "sum-tall",
        "the same: rows that lie far apart are not fetched ahead")
    tall_columns = number(32, 0, 512, "columns", "sum-tall",
        "several rows taken as one where columns are few")
    tall_elements = number(1 << 12, 0, 1 << 40, "elements", "sum-tall",
        "the same: fewer are not worth it")
    tall_part = number(1 << 16, 1, 1 << 40, "elements", "sum-tall",
        "a fold shared by threads against adding up its parts")
    tall_parts = number(64, 0, 1024, "parts", "sum-tall", "the same: parts for all threads")
    short_line = number(8, 0, 1 << 20, "elements", "short-lines",
        "rows of a unit in lanes against one row after the other")
    long_line = number(8, 2, 1 << 10, "elements", "eight-columns",
        "functions of a row in a vector against those of several rows at once")
    rows_of_unit = number(16, 1, 1 << 20, "rows", "short-lines", "the same: as many as lanes")
    fold_columns = number(512, 16, 1 << 20, "columns", "sum-columns",
        "accumulators in the first cache against short loops")
    far_columns = number(4096, 16, 1 << 20, "columns", "sum-columns",
        "the same where memory is waited for: rows that are fetched ahead along")
    fold_far = number(1 << 23, 0, 1 << 40, "bytes", "sum-columns",
        "the same: operands of so many")
    fold_rows = number(8, 1, 32, "rows", "sum-columns",
        "rows added up before an accumulator is stored against streams")
    narrow_rows = number(64, 0, 1 << 20, "rows", "sum-few-rows",
        "f32 accumulators against sums that lose nothing")
    fold_rows_of_many = number(4, 1, 32, "rows", "layernorm",
        "the same where several operands are read")
    register_columns = number((16, 32), (), (8, 16, 32, 64), "columns", "sum-columns",
        "widths whose accumulators LLVM keeps in registers")
    fold_small = number(1 << 16, 0, 1 << 40, "bytes", "compile",
        "folding fast against a longer compilation")
    fold_large = number(1.0, 0.0, 1e9, "third-level caches", "sum-columns",
        "any fold waits for memory where operands are in no cache")
    epilogue_block = number(32, 1, 1 << 20, "columns", "gemm-256",
        "an epilogue over several rows at once against vectors not filled")
    row_products = number(64, 1, 1 << 30, "rows", "thin",
        "a row in each lane against the core: products of few elements")
    short_product = number(64, 0, 4096, "multiply-adds", "thin", "the same: work of a row")
    short_dot = number(16, 0, 4096, "multiply-adds", "thin",
        "the same where a row is one sum: code to compile, and a call of the core")
    small_rows = number(32, 0, 1 << 20, "rows", "thin",
        "stacks of small products in loops of their own against the contraction core")
    small_steps = number(16, 0, 64, "elements", "thin",
        "the same: longer sums need more registers than there are")
    small_terms = number(128, 1, 4096, "multiply-adds of vectors", "thin",
        "the same: rows at once, which share what they load, against code")
    split_share = number(0.5, 0.001, 1e9, "second-level caches of the matrix", "split-k",
        "a sum shared by threads against adding up its parts")
    split_parts = number(16, 1, 1024, "parts", "split-k", "the same: parts for all threads")
    split_results = number(512, 0, 1 << 20, "sums", "split-k", "the same: of several rows")
    split_rows = number(128, 0, 1 << 20, "rows", "split-k-of-rows",
        "the same, where columns are few, too: threads that share the rows read B each")
    split_depth = number(16, 1, 1 << 20, "steps of k a row", "split-k-of-rows",
        "the same: adding up the parts against long sums")
    split_columns = number(64, 0, 1 << 20, "columns", "split-k-of-rows",
        "the same: threads that share many columns read enough of a row of B")
    split_steps = number(64, 1, 1 << 40, "steps of k", "split-k",
        "the same: sums of a part are stored and loaded once more")
    tile_side = number(16, 2, 256, "elements", "transpose",
        "cache lines used whole against both sides staying near")
    tile_length = number(256, 2, 1 << 20, "elements", "transpose",
        "the same for tiles that are turned in registers: streams of stores against lines kept")
    tile_flops = number(12, 0, 1 << 20, "operations per element", "transpose",
        "the same: copies of the work of an element against code to compile")
    tile_least = number(8, 1, 1 << 20, "elements", "transpose",
        "the same: shorter sides are not worth tiles")
    tile_across = number(2, 2, 1 << 20, "elements", "transpose-narrow",
        "the same of the side that is read along: rows are turned whole against a loop for each")

    # Vector code (llvm/).
    call_weight = number(16, 1, 1000, "instructions", "softmax", "what a math function counts for")
    most_copies = number(4, 1, 16, "vectors", "pointwise",
        "instructions under way against registers and code")
    gathered_weight = number(96, 0, 1000, "instructions", "small-loops",
        "loads of single elements that are under way against code")
    light_weight = number(24, 0, 1000, "instructions", "pointwise",
        "the same: instructions of all copies together")
    chain_weight = number(96, 0, 1000, "instructions", "sum-columns",
        "the same where copies need not wait for one another's sums")
    most_apart = number(4, 1, 4, "elements", "small-loops",
        "loads of what lies apart, and their shuffles, against code for one element")
    most_lanes = number(64, 2, 64, "lanes", "pointwise", "the widest vectors that are written")
    half_vectors = number(4, 0, 64, "vectors", "small-loops",
        "halves of vectors, which cross fewer lines, in short loops")
    heavy_weight = number(96, 0, 10_000, "instructions", "softmax",
        "one masked loop against a loop and a rest")
    moving_weight = number(8, 0, 1000, "instructions", "pointwise",
        "halves of vectors where memory is waited for, on CPUs that split them, against whole ones")
    moved_bytes = number(1 << 20, 0, 1 << 40, "bytes", "pointwise",
        "the same: kernels of more memory than the caches of a core hold")
    short_rows = number(7, 0, 16, "vectors", "open-rows",
        "rows of an open length written for each number of vectors against code")
    row_versions = number(1000, 0, 1 << 20, "instructions", "open-rows",
        "the same: instructions of all versions together")
    lane_elements = number(8, 0, 16, "elements", "short-open-rows",
        "rows of so few in lanes, each length for itself, against code")
    lane_versions = number(2000, 0, 1 << 20, "instructions", "short-open-softmax",
        "the same: instructions of all versions together")
    object_text = number(16_000, 1, 1 << 24, "characters", "compile",
        "objects compiled side by side against starting LLVM for each")
    machine_level = number(2, 0, 2, "level", "compile",
        "machine code of kernels that LLVM has chosen and ordered well against compile time")
    compile_threads = number(4, 1, 64, "threads", "compile",
        "compile time against memory: each thread has an LLVM context")

    # Sorting by vectors (sorting/).
    lane_sorted_row = number(128, 0, 1 << 14, "bytes", "sort-short",
        "rows side by side in lanes, without a key that is none, against a network for each")
    partitioned_vectors = number(4, 1, 8, "vectors", "sort-long",
        "vectors read before any is written: none waits for another, against registers")
    pivot_sample = number(64, 16, 64, "keys", "sort-long",
        "parts of equal length against sorting a sample for each")
    sampled_part = number(2048, 256, 1 << 30, "keys", "sort-long",
        "the same: shorter parts take a sample of 16")
    grouped_row = number(2048, 64, 1 << 40, "keys", "argsort-long",
        "two looks at every key against partitions of the row")
    group_keys = number(96, 1, 1 << 20, "keys of a group", "argsort-long",
        "the same: groups that fit in a network against writing to many places")
    crowded_groups = number(4, 1, 1 << 20, "times", "argsort-long",
        "the same: more pairs of keys in a group than even keys would have")

    looked_bits = number(17, 1, 40, "bits of the iterations in between", "sort-long",
        "how soon a sort is cancelled against looks at the flag")

    # Kernels and rows of the step table.
    slow_flops = number(4e10, 1e3, 1e30, "operations per second", "gemm-1024",
        "what a slow thread does: looks at the cancel flag come from it")
    slow_steps = number(3e8, 1e3, 1e30, "operations per second", "long-loop",
        "the same for what is no product")
    slow_bytes = number(3e8, 1e3, 1e30, "bytes per second", "gemm-1024", "the same for memory")
    untold_passes = number(64, 1, 1 << 20, "passes over its operands", "sort-long",
        "the same for what does not say how much it does: sorts")
    long_kernel = number(0.1, 0.0, 1e9, "seconds", "gemm-1024",
        "how soon a run is cancelled against looks at the flag")
    poll_seconds = number(0.03, 1e-6, 1e9, "seconds", "gemm-1024",
        "the same: the time between two looks")
    long_looks = number(5, 0, 1000, "looks", "long-fft",
        "the same for kernels whose loops are counted")
    kept_specs = number(4096, 1, 1 << 20, "kernels", "compile",
        "memory against compiling known kernels again")
    kept_code = number(16 << 20, 0, 1 << 40, "bytes", "compile",
        "memory against reading object code again")
    copied_bytes = number(1 << 22, 0, 1 << 40, "bytes", "concat",
        "a copy as a row of the table against a kernel, which threads share")
    copied_carry = number(4096, 0, 1 << 40, "bytes", "lstm",
        "a carry copied once against looking after it in each run of a body")
    copied_swap = number(4 << 20, 0, 1 << 40, "bytes", "gpu",
        "carries of a while loop copied in each run against a host that decides")


tuned = CodegenTuning("codegen")
