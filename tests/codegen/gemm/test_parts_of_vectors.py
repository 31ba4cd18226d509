"""The first lanes of a vector, on machines whose instructions take no masks."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from contract_cores import link
from guarded_arrays import guarded

from graphc.codegen.gemm import compile_core, hardware_of
from graphc.codegen.gemm.emit import Body
from graphc.codegen.gemm.tile_choice import kind_of
from graphc.codegen.gemm.vector import Core
from graphc.codegen.llvm.target import host

ELEMENTS = {"float": "f4", "double": "f8", "i8": "u1", "i16": "u2", "i32": "u4", "i64": "u8"}


def copier(element: str, lanes: int) -> int:
    """The address of a function that loads so many lanes and stores as many."""
    hardware = hardware_of(host())._replace(masked=False)
    core = Core(kind_of("f32", hardware), hardware)
    body = Body("part", [("ptr", "source"), ("ptr", "target"), ("i64", "count")])
    value = core.load_part(body, lanes, "%source", "%count", element)
    core.store_part(body, lanes, value, "%target", "%count", element)
    body.do("ret void")
    core.finish(body, "")
    name = f"part_{element}_{lanes}"
    text = core.module().replace("@part(", f"@{name}(")
    return link(compile_core([text], True, host()), [name], {})[name]


@pytest.mark.parametrize("lanes", [2, 8, 16])
@pytest.mark.parametrize("element", ELEMENTS)
def test_every_number_of_lanes_is_copied_and_nothing_else_touched(element: str, lanes: int) -> None:
    kinds = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    copy = ctypes.CFUNCTYPE(None, *kinds)(copier(element, lanes))
    for count in range(lanes + 3):
        data = np.arange(1, min(count, lanes) + 1).astype(ELEMENTS[element])
        source = guarded(data, "behind")
        target = guarded(np.zeros_like(data), "behind")
        copy(source.ctypes.data, target.ctypes.data, count)
        np.testing.assert_array_equal(target, data)
