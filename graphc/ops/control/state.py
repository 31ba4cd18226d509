"""Ops of state: a variable lives in a container, outlives every run and is read and assigned.

Program order on one variable is kept by `after` edges (see `record/effects.py`); the pass `state`
leaves at most one read and one assign of each.
"""

from __future__ import annotations

from typing import Any

from graphc.ir.op import Attr, Effect, Structural
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Type
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import constant, refused
from graphc.ops.record.families import define, require, require_tensor

MAIN = "main"  # the container of a variable that names none


def _no_reference(*arrays: Array, **attrs: object) -> Any:
    raise AssertionError("variables are read and assigned by the interpreter")


def _infer_read(*, name: str, container: str, type: Type) -> Type:
    require(type.is_static, f"variable {name!r} of type {type}: its shape must be known")
    return type


def _infer_assign(x: AnyType, *, name: str, container: str) -> AnyType:
    require_tensor("assign", x)
    return x


read = define(
    "read",
    batch=constant,
    infer=_infer_read,
    reference=_no_reference,
    lower=Structural(),
    attrs=(Attr("name", "str"), Attr("container", "str", MAIN), Attr("type", "type")),
    effect=Effect.READ,
    differentiable=False,
    doc="The value of a variable.",
    traits=Traits(resident=True, idle=True),
)

assign = define(
    "assign",
    batch=refused("a variable has one value for all lanes"),
    infer=_infer_assign,
    reference=_no_reference,
    lower=Structural(),
    attrs=(Attr("name", "str"), Attr("container", "str", MAIN)),
    effect=Effect.WRITE,
    gradient=lambda ct, result, x, **attrs: (ct,),
    doc="Store a value in a variable; the result is that value.",
    traits=Traits(idle=True),
)
