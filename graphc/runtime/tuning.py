"""Tuned numbers of the runtime: see `graphc.tuning` for what they have in common."""

from __future__ import annotations

from graphc.tuning import Tuning, number


# fmt: off
class RuntimeTuning(Tuning):
    """Values, the ends of their ranges, units, the case that judges them, what they trade."""

    # Calls: threads, results, variables (call/).
    worker_spin = number(100_000, 0, 1 << 30, "nanoseconds", "pointwise",
        "a worker at once against a core that is busy waiting")
    drain_seconds = number(20e-6, 0.0, 0.01, "seconds", "variables",
        "an assignment at once against looks whether readers are done")
    gil_nanoseconds = number(5_000, 0, 1 << 40, "nanoseconds", "call",
        "other threads of Python that run meanwhile against dropping the GIL")
    measured_runs = number(2, 1, 1 << 20, "runs", "call",
        "the fast path at once against knowing how long a run takes")
    kept_arenas = number(1 << 30, 0, 1 << 40, "bytes", "call",
        "memory kept for runs at the same time against mapping it again")
    kept_sizes = number(64, 1, 1 << 20, "sizes", "call",
        "memory of sizes that were met against filling in a size again")
    kept_models = number(1 << 30, 0, 1 << 40, "bytes", "call",
        "programs of models kept on the disk against compiling them in the next process")
    kept_results = number(4, 0, 64, "blocks", "pointwise",
        "memory of results kept for the next call against mapping it again")

    library_bytes = number(1 << 21, 0, 1 << 40, "bytes of scratch", "eigenvalues",
        "how soon Ctrl-C ends a routine of LAPACK against a thread for its run")
    listens = number(0.05, 1e-3, 1.0, "seconds", "interrupt",
        "the same: the time between two looks for an interrupt")

    # GPUs (cuda/).
    copied_beside = number(1 << 16, 0, 1 << 40, "bytes", "gpu",
        "a message copied beside the kernels against one more event")
    trial_seconds = number(2e-3, 1e-6, 1.0, "seconds between two marks", "gpu",
        "sure choices of products against the first run")
    trial_rounds = number(16, 1, 1024, "calls between two marks", "gpu", "the same")
    trial_budget = number(0.2, 1e-3, 10.0, "seconds of all calls", "gpu", "the same")
    trial_compared = number(1 << 22, 64, 1 << 40, "bytes of a result", "gpu",
        "wrong products found against the first run")
    trial_repeats = number(5, 1, 100, "marks", "gpu",
        "sure choices of products against the first run")
    trial_work = number(1 << 20, 0, 1 << 40, "multiplications", "gpu", "products worth a trial")
    gathered_bytes = number(1 << 14, 0, 1 << 40, "bytes", "gpu",
        "a value copied twice, with others, against a copy by itself")
    kept_blocks = number(1 << 32, 0, 1 << 40, "bytes", "gpu",
        "memory kept for the next run against allocating it again")
    stack_bytes = number(1 << 16, 64, 1 << 30, "bytes", "gpu",
        "memory of a stack against growing it")
    algorithms = number(4, 1, 64, "algorithms", "gpu", "the best of so many against the first run")
    workspace = number(32 << 20, 0, 1 << 40, "bytes", "gpu", "faster products against memory")
    pending = number(4, 1, 8, "runs", "gpu", "runs launched ahead against memory")
    pending_arenas = number(1 << 28, 0, 1 << 40, "bytes", "gpu", "the same, where it is large")
    unknown_places = number(8, 1, 1 << 20, "runs", "gpu",
        "runs on arrays where they lie against copies of those that always lie elsewhere")
    moved_bytes = number(1 << 24, 0, 1 << 40, "bytes", "gpu",
        "a copy within the device against writing down launches anew")
    stretches = number(64, 1, 1 << 16, "graphs of launches", "gpu",
        "launches at once against memory")
    prepared = number(1 << 15, 1, 1 << 30, "launches", "gpu", "launches kept packed against memory")
    turn_acts = number(64, 1, 1 << 20, "launches", "gpu",
        "rounds of a loop in one node against the price of a node's turn")
    straight_acts = number(256, 0, 1 << 20, "launches", "gpu",
        "loops without a node against memory, and time to make their graphs")
    near_bytes = number(1 << 17, 0, 1 << 40, "bytes of a launch", "gpu",
        "a node that repeats rounds against slices copied twice")
    near_most = number(1 << 24, 0, 1 << 40, "bytes", "gpu", "the same, against memory")
    moved_at_once = number(1 << 16, 0, 1 << 40, "bytes", "gpu",
        "copies of a loop's round in one kernel against nodes that fill the chip")
    planned_steps = number(20_000, 0, 1 << 30, "steps", "gpu", "plans of runs against memory")


tuned = RuntimeTuning("runtime")
