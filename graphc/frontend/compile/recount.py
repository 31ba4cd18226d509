"""Recount: the trace that a run is for, where Python decides by counts that only runs know.

found = x[x > 0]
if len(found) == 0:       traced for 32; the run has 0: traced again, for 0
    return zeros
return found + y          an error for 32; what was traced so far counts 7: traced again, for 7
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.config import Config
from graphc.frontend.compile.baked import Baked
from graphc.frontend.compile.data_sizes import counts_of, is_for
from graphc.frontend.compile.signature import Signature
from graphc.frontend.compile.variant import Variant
from graphc.frontend.trace.trace import traced_before
from graphc.ir.sizes import Scope
from graphc.runtime.call.phased_executable import Refused
from graphc.runtime.tuning import tuned

Counts = Mapping[str, int]
Run = Callable[[Variant], Any]


def run_for_counts(variant: Variant, run: Run, make: Callable[[Counts], Variant]) -> Any:
    """Run a variant of one signature; where a run counts what Python has decided otherwise by, one
    that is for that: a known one, or a new one that `make` compiles.  The latest is tried first."""
    known = variant.by_counts
    found = next(filter(_holds, known), variant)
    while True:
        try:
            return run(found)
        except Refused as change:
            counts = change.counts
        fitting = (v for v in known if _holds(v) and is_for(v.traced, counts))
        found = next(fitting, None) or make(counts)
        known[:] = [found, *(v for v in known if v is not found)][: tuned.kept_sizes]


def _holds(variant: Variant) -> bool:
    """Whether what it has read while tracing is what it was."""
    return not variant.baked or variant.baked.holds()


def trace_for_counts(
    trace: Callable[[Signature, str, Scope], Variant],
    signature: Signature,
    leaves: Sequence[Any],
    counts: Counts,
    config: Config,
) -> Variant:
    """The variant for what a run of these leaves counts; some is known already.

    What is traced before an error is run for its counts: with the true ones there may be none.
    """
    while True:
        listed = ", ".join(f"{name} = {number}" for name, number in counts.items())
        try:
            return trace(signature, f"the run counted {listed}", Scope(counts))
        except Exception as error:
            known, so_far = counts, traced_before(error)
            if so_far is not None:
                arrays = Variant(signature, so_far, Baked(), "").feeds(leaves)
                counts = counts_of(so_far, config, arrays)
            if counts == known:
                raise
