"""What programs share, compiled ahead: a container image can hold it, so that no first call waits.

That is the walker with what belongs to it, and the cores of products, each function in an object of
its own. Kernels of a program are its own: they are in the cache after its first call.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.codegen import cache
from graphc.codegen import gemm as contract
from graphc.codegen.cache import Cache
from graphc.codegen.compiler import core_key
from graphc.codegen.gemm import Module, Part
from graphc.codegen.gemm.layout import height_bit
from graphc.codegen.gemm.packed import hardware_for
from graphc.codegen.gemm.tile_choice import FORMATS, core_dtype
from graphc.codegen.llvm.target import target_of
from graphc.codegen.runtime.support import WALKER, support_key, support_object
from graphc.config import Config
from graphc.errors import GraphError

FEW = Part.ALL & ~(Part.TURNS | Part.BRISK | Part.BRISK_ROWS | Part.TABLES)


def fill(config: Config, dtypes: Iterable[str]) -> tuple[int, int]:
    """Compile the shared code of this machine, with the cores of these data types, into the cache:
    how many objects are new, and how many were there.

    Raises GraphError for a type that has no core, and where the cache does not keep what it gets.
    """
    target, store = target_of(config), Cache(cache.default().root)  # it has nothing in memory
    cores = [core for dtype in dtypes for core in modules(dtype, config)]
    wanted = {core_key(module, target): module for module in cores}
    walker = support_key(target)
    there = store.get([walker, *wanted])
    if walker not in there:
        store.put(support_object(target), {walker: WALKER})
    for key in wanted.keys() - there.keys():
        module = wanted[key]
        code = contract.compile_core([module.text], module.inner, target)
        store.put(code, {key: module.symbol})
    kept = Cache(store.root).get([walker, *wanted])
    if missing := len(wanted) + 1 - len(kept):
        raise GraphError(
            f"{store.root} does not hold {missing} of {len(wanted) + 1} objects that it was given",
            hint="GRAPHC_CACHE_DIR names a folder of the user's own, with space left, that nobody "
            "else may write to",
        )
    return len(kept) - len(there), len(there)


def modules(dtype: str, config: Config) -> list[Module]:
    """The modules of which the core of any program is made; GraphError for a type without one."""
    if core_dtype(dtype) not in FORMATS:
        raise GraphError(f"products of {dtype} have no core", hint=f"one of {', '.join(FORMATS)}")
    hardware = hardware_for(config)
    # A program with few heights has each as a tile of its own, one with many puts some together.
    heights = [Part.TILES | Part.NARROW | height_bit(rows) for rows in range(2, 15, 2)]
    parts = [Part.ALL, FEW, *heights]
    return [module for some in parts for module in contract.core_of(dtype, hardware, some)]
