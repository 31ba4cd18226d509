"""Running StableHLO text by XLA: JAX has no public call for a module that it has not traced.

What is used: the dialects and the parser of jaxlib's MLIR, and the compiler of its CPU client.
Seen with JAX 0.6 to 0.10; anything that is not as expected counts as not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class NotThere(Exception):
    """JAX is not installed, or is another than those known."""


class Rejected(Exception):
    """Text that XLA does not take, or cannot run."""


def run(text: str, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The results of @main of a module on a CPU. Raises NotThere, Rejected."""
    try:
        import jax
        from jax._src import xla_bridge
        from jax._src.interpreters import mlir
        from jax._src.lib.mlir import ir
        from jaxlib import xla_client

        client = xla_bridge.get_backend("cpu")
        context, options = mlir.make_ir_context(), xla_client.CompileOptions()
        devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))
        compile_text = client.compile_and_load
    except (ImportError, AttributeError, RuntimeError) as error:
        raise NotThere(str(error)) from None
    try:
        with context, ir.Location.unknown():
            module = ir.Module.parse(text)
            module.operation.verify()
        program = compile_text(module, devices, options)
        with jax.enable_x64(True):
            given = [jax.device_put(a, client.local_devices()[0]) for a in arguments]
            made = program.execute_sharded(given).disassemble_into_single_device_arrays()
            return [np.asarray(parts[0]) for parts in made]
    except Exception as error:  # noqa: BLE001  (errors of MLIR and XLA have classes of their own)
        raise Rejected(str(error)) from None
