"""Tuned numbers of the passes: see `graphc.tuning` for what they have in common."""

from __future__ import annotations

from graphc.tuning import Tuning, number


# fmt: off
class PassesTuning(Tuning):
    """Values, the ends of their ranges, units, the case that judges them, what they trade."""

    # Loops of the graph: what leaves a loop body.
    stacked_share = number(0.5, 0.0, 1e9, "third-level caches", "train-lstm",
        "one product over all steps against memory for their operands")
    hoisted_transpose = number(4096, 0, 1 << 40, "bytes", "train-lstm",
        "a copy before the loop against strided reads in each step")
    hoisted_share = number(1 / 16, 0.0, 1e9, "second-level caches", "lstm",
        "a value kept through the loop against making it in each step")
    hoisted_flops = number(4.0, 0.0, 1e9, "operations per element", "lstm",
        "a load against computing again")
    batched_dot_rows = number(64, 0, 1 << 20, "rows", "lstm",
        "one product over all steps: with more rows each is fast alone")
    batched_dot_steps = number(4, 1, 1 << 20, "steps", "lstm",
        "memory for all products against reading the matrix once")
    batched_dot_share = number(0.5, 0.0, 1e9, "third-level caches", "lstm",
        "products of all steps must be near when they are read")
    batched_dot_rows_on_gpu = number(512, 0, 1 << 20, "rows", "gpu",
        "one product over all steps: with more rows each fills the chip")
    batched_dot_on_gpu = number(1 << 28, 0, 1 << 40, "bytes", "gpu",
        "memory for all products against a launch in each step")
    merged_dot_rows = number(64, 0, 1 << 20, "rows of a slice", "train-lstm",
        "reading a matrix once for several products of few rows")
    merged_dot_share = number(9 / 16, 0.0, 1e9, "second-level caches", "train-lstm",
        "products that are there at once against reading the matrix again")

    # Ways to compute an op (normalise/).
    folded_columns = number(8, 0, 64, "columns", "few-columns",
        "columns side by side in a vector against rows whose elements lie apart")
    summed_columns = number(4, 0, 64, "columns", "few-columns",
        "the same of sums, several columns of which are added at a time")
    folded_terms = number(8, 1, 1 << 20, "elements", "few-columns",
        "the same: shorter columns stay in registers")
    folded_terms_of_more = number(96, 1, 1 << 20, "elements", "few-columns",
        "the same of five columns or more")
    summed_terms = number(16, 1, 1 << 20, "elements for each column but one", "few-columns",
        "the same of sums")
    window_outputs = number(2, 0, 1 << 20, "outputs per group", "depthwise",
        "loops over windows against a contraction")
    window_terms_of_few = number(144, 0, 1 << 20, "products", "depthwise",
        "the same where a group has few outputs")
    window_terms = number(64, 0, 1 << 20, "products", "depthwise", "the same where it has many")
    winograd_inputs = number(16, 1, 1 << 20, "channels", "winograd",
        "multiplications saved against transforms")
    winograd_outputs = number(8, 1, 1 << 20, "channels", "winograd",
        "multiplications saved against transforms")
    winograd_group = number(256, 0, 1 << 30, "products of two channels of a group", "grouped",
        "the same of several groups, whose weights are read for few products each")
    winograd_tiles = number(24, 1, 1 << 20, "tiles", "winograd",
        "the same against transforming the weights in each run")
    winograd_tiles_if_constant = number(12, 1, 1 << 20, "tiles", "winograd",
        "the same where weights are transformed once")
    live_taps = number(0.85, 0.0, 1.0, "of the products on an axis", "dilated",
        "products by zeros left out against a sum of several results")
    live_channels = number(24, 1, 1 << 20, "products left out for each tap", "dilated",
        "the same: what a result costs in the sum")
    live_products = number(9, 1, 1 << 10, "products", "dilated",
        "the same: what a kernel costs a compilation")
    live_work = number(1 << 20, 0, 1 << 40, "products left out", "dilated",
        "the same: what a kernel costs a run")
    live_results = number(64, 0, 1 << 30, "products left out for each tap", "dilated",
        "the same where weights are cut in each run")
    narrowed_operations = number(8.0, 0.0, 1e9, "multiplications per element", "bf16",
        "products of 16 bits against rounding their operands")
    paired_operations = number(64.0, 0.0, 1e9, "multiplications per element", "bf16",
        "products of 16 bits against fetching the elements of an operand one by one")
    paired_run = number(8, 1, 1 << 20, "elements", "bf16",
        "the same: longer runs are fetched as vectors")
    winograd_tiles_if_narrow = number(96, 1, 1 << 20, "tiles", "bf16",
        "multiplications saved against products of 16 bits")
    winograd_product_if_narrow = number(2.4, 0.0, 1e9, "products of 16 bits", "bf16",
        "what a product of f32 takes against those that Winograd's method saves")
    winograd_point_if_narrow = number(44.0, 0.0, 1e9, "products of 16 bits per element", "bf16",
        "the same: what a number takes that is transformed")
    turned_image = number(256.0, 0.0, 1e9, "multiplications per element", "bf16",
        "windows that need no copy against images turned before and behind")
    pool_row = number(32, 0, 1 << 20, "elements", "pool",
        "windows side by side as such: longer rows are loops enough")
    pool_window = number(16, 0, 64, "elements", "pool",
        "the same: larger windows have more to fetch")
    folded_product = number(64, 1, 1 << 10, "flops", "compile",
        "constants multiplied once against a longer compilation: so many cost as one of elements")
    folded_bytes = number(128, 0, 1 << 16, "bytes", "compile",
        "constants made while compiling against bytes in the program")

    evaluated_bytes = number(1 << 26, 0, 1 << 40, "bytes", "compile",
        "kernels of constants that run while compiling against running in each call")

    # Fusion: which nodes are one kernel.
    long_dot = number(1 << 16, 2, 1 << 40, "elements", "dot",
        "a dot product shared by threads against the contraction core")
    short_row = number(64, 0, 1 << 20, "elements", "short-rows",
        "sums of products in a loop against the contraction core")
    many_rows = number(256, 1, 1 << 40, "rows", "short-rows",
        "the same: as many rows as fill vectors across them")
    small_product = number(1000, 0, 1 << 20, "multiplications", "small-products",
        "a loop against setting up the contraction core")
    few_terms = number(3, 1, 16, "products", "few-terms",
        "a sum of outer products in one loop against the contraction core")
    many_columns = number(64, 1, 1 << 20, "columns", "few-terms",
        "the same: narrower ones are rows of which a vector holds several")
    computed_operand = number(1 << 12, 0, 1 << 40, "elements", "matvec",
        "an operand computed in the sum against storing it")
    computed_steps = number(8, 0, 64, "nodes", "matvec", "the same: nodes that compute it")
    update_share = number(4, 1, 1 << 20, "times what is read", "updates",
        "a copy of what an update reads against a copy of the array")
    small_peak = number(1 << 20, 0, 1 << 40, "bytes", "train-mlp",
        "siblings run apart to save memory against one kernel for them")
    sibling_tries = number(4, 0, 64, "tries", "compile", "memory saved against compile time")
    group_nodes = number(64, 1, 64, "nodes", "layernorm",
        "fewer passes over memory against registers and compile time")
    group_operands = number(24, 2, 32, "operands", "layernorm",
        "the same: streams that hardware follows at once")
    view_weight = number(12, 0, 64, "weights of index arithmetic", "transpose",
        "a view read in place against a copy of it")
    kernel_scalars = number(32, 0, 1024, "different numbers", "train-mlp",
        "numbers in the kernels against kernels shared among many")
    inlined_concat = number(3, 0, 32, "operands", "concat",
        "reading through a concat against storing it")
    sibling_distance = number(8, 0, 1 << 20, "nodes", "train-transformer",
        "reading an operand once against results that live longer")
    far_reader = number(24, 0, 1 << 20, "nodes", "train-transformer",
        "reading once against memory: a later reader had better wait")
    early_update_nodes = number(40, 0, 64, "nodes", "train-mlp",
        "parameters updated at once: more nodes are searched for longer")
    shared_kernel_waste = number(1 << 16, 0, 1 << 40, "bytes", "train-transformer",
        "a result stored for nobody against one more kernel to compile")
    prologue_nodes = number(8, 0, 64, "nodes", "minilm",
        "an operand computed while it is packed against storing it")
    prologue_rows = number(2.0, 0.0, 1e9, "second-level caches", "minilm",
        "the same for rows of the left operand: nearer ones are cheap to store")
    prologue_columns = number(12.0, 0.0, 1e9, "second-level caches", "minilm",
        "the same for columns of the right operand")
    recompute_nodes = number(24, 0, 64, "nodes", "train-transformer",
        "a value made again against storing it for the backward pass")
    recompute_bytes = number(1 << 14, 0, 1 << 40, "bytes", "train-transformer",
        "the same: smaller ones are not worth the compile time")
    recompute_flops = number(8.0, 0.0, 1e9, "operations per element", "train-transformer",
        "the same: heavier nodes must save a whole array each")

    slot_ratio = number(4, 1, 1 << 20, "times", "conv",
        "values whose halves lie in the same places against memory that small ones leave")
    slot_memory = number(2.0, 1.0, 1e9, "times the largest sum of values", "conv",
        "the same for the whole arena")

    # Tiling: values that are made in blocks.
    block_value = number(1.0, 0.0, 1e9, "second-level caches", "minilm",
        "a value kept out of memory against starting blocks")
    block_value_on_gpu = number(1 << 28, 0, 1 << 40, "bytes", "gpu",
        "the same: a block there is a launch at least")
    block_on_gpu = number(1 << 27, 1, 1 << 40, "bytes", "gpu",
        "bytes that stay near between two launches, times two")
    block_ratio = number(2, 1, 1 << 20, "times the result", "minilm", "memory saved against blocks")
    block_rows_shared = number(128, 1, 1 << 20, "rows", "minilm",
        "rows that share what a block reads of other operands")
    block_most = number(4, 1, 1 << 20, "second-level caches", "minilm",
        "the same where rows are long: a block that is too large is not near")
    block_rows = number(16, 1, 1 << 20, "rows", "minilm",
        "small blocks that stay near against starting many")
    block_shared = number(4, 1, 1 << 20, "times", "minilm",
        "what blocks share and read again does not count if so much smaller")
    block_start = number(8, 0, 1 << 20, "rows", "minilm",
        "what starting a block costs: fewer blocks against even ones")
    block_memory = number(1 << 30, 0, 1 << 40, "bytes", "minilm",
        "memory that is not worth having for speed")
    image_tiles = number(48, 1, 1 << 20, "tiles of Winograd per block", "winograd",
        "blocks that stay near against reading the weights again")
    transposed_row = number(256, 0, 1 << 20, "elements", "conv",
        "operands that change places: short rows fill too few tiles")

    # Memory: what is kept, dropped, laid out.
    dropped_shares = number((0.25, 0.5, 0.75, 1.0),
        (1.0,), (0.1, 0.3, 0.6, 0.9, 1.0), "of the values that wait", "memory-limit",
        "memory against computing again: candidates that are tried")
    segment_counts = number((2.0, 1.0, 0.5),
        (1.0,), (4.0, 2.0, 1.0, 0.5, 0.25), "per root of the number of values", "memory-limit",
        "the same: how the graph is cut")
    drop_rounds = number(3, 1, 8, "rounds", "memory-limit", "the same against compile time")
    late_messages = number(16, 1, 64, "messages", "devices",
        "memory reused against messages that wait for it")

    bucket_latencies = number(16.0, 0.0, 1e6, "latencies of the slowest link per device", "devices",
        "messages saved against a copy into a bucket, and a later start")

    # Placement: what a search may take. No number here changes what is computed.
    proof_tasks = number(20_000, 0, 1 << 20, "tasks", "placement",
        "a bound on what is lost against compile time")
    task_seconds = number(5e-6, 1e-7, 1e-3, "seconds of the budget per simulated task", "placement",
        "budgets count tasks, not time, so that runs repeat")
    bound_seconds = number(2e-6, 1e-7, 1e-3, "seconds of the budget per bound", "placement",
        "the same for branch and bound")
    exact_share = number(0.2, 0.0, 0.9, "of the budget", "placement",
        "branch and bound against local search")
    restarts = number(40, 1, 1000, "restarts", "placement",
        "a better placement against compile time")
    paired_classes = number(64, 0, 512, "classes", "placement",
        "the same: all pairs of so many are tried")
    exact_assignments = number(1 << 20, 1, 1 << 24, "assignments", "placement",
        "the best placement against compile time")
    guessed_rounds = number(10, 1, 1 << 20, "rounds of a `while`", "placement",
        "a guess, where no length is known")
    measured_runs = number(31, 1, 1000, "runs", "placement",
        "a steady median against times of today")
    measured_channels = number(64, 0, 4096, "channels", "compression",
        "bytes saved against compile time")


tuned = PassesTuning("passes")
