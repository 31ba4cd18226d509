"""Python's garbage collector beside the compiler: paused, and not sent over what stays."""

from __future__ import annotations

import gc
import subprocess
import sys

from graphc.base.garbage_collection import collector_paused


def test_the_pause() -> None:
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


FIRST_CALL = """
import gc
import numpy as np

class Cycle:
    pass

found, gone = [], []
def forget():
    waste = Cycle()
    waste.itself, waste.gone = waste, [0] * 10
    import weakref
    weakref.finalize(waste, gone.append, 1)

{freeze}
gc.callbacks.append(lambda phase, info: found.append(info["generation"]))
import graphc
forget()
first = graphc.compile(lambda x: graphc.exp(x) * 2)
first(np.ones(1000, np.float32))
print(len(found) < 4, gc.isenabled(), gc.get_freeze_count() > 0, len(gone))
gc.collect()
print(len(gone))
"""


def first_call(freeze: str) -> list[str]:
    code = FIRST_CALL.format(freeze=freeze)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_first_call_does_not_collect() -> None:
    assert first_call("") == ["True True False 0", "1"]


def test_what_is_frozen_stays_frozen() -> None:
    last = first_call("gc.freeze()")
    assert last[0].split()[1:3] == ["True", "True"]
    assert last[1] == "1"
