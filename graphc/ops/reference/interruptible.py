"""Long calls of NumPy, which hear no signal, run on a thread while the main thread waits for them.

    main thread     ..wait..........KeyboardInterrupt
    another one     np.sort(6e7 numbers)..............ends, is forgotten

So Ctrl-C and time limits end the wait at once.  The call itself goes on until NumPy is done with
it, or the process ends.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from graphc.ops.tuning import tuned


def is_long(arrays: Iterable[Any], made: int) -> bool:
    """Whether a call on these arrays, for a result of so many elements, may take long."""
    return made + sum(a.size for a in arrays if isinstance(a, np.ndarray)) >= tuned.long_call


def interruptible(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function returns or raises; signals are heard while it runs."""
    if threading.current_thread() is not threading.main_thread():
        return function(*args, **kwargs)
    found: list[Any] = []
    failed: list[BaseException] = []
    done = threading.Event()
    context = contextvars.copy_context()  # what NumPy does about errors is there

    def work() -> None:
        try:
            found.append(context.run(function, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001  (it is raised where the call was made)
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name="graphc-reference", daemon=True).start()
    while not done.wait(tuned.listens):  # a time limit interrupts Python, not a wait
        pass
    if failed:
        raise failed[0]
    return found[0]
