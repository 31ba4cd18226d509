"""Stacks: what the gradient of a loop remembers values in. They grow at run time.

A stack is a linear value: it is read once, and what the reader returns stands for it from then on.
"""

from __future__ import annotations

from typing import Any

from graphc.errors import GraphError
from graphc.ir.op import Attr, Structural
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, StackType, stack_type, tuple_type
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import constant, late
from graphc.ops.record.families import define, require
from graphc.ops.record.value import Value, emit, functions


def _infer_push(stack: AnyType, x: AnyType) -> AnyType:
    require(isinstance(stack, StackType), f"push takes a stack, got {stack}")
    assert isinstance(stack, StackType)
    require(x is stack.element, f"push: a {stack} cannot hold {x}")
    return stack


def _infer_pop(stack: AnyType) -> AnyType:
    require(isinstance(stack, StackType), f"pop takes a stack, got {stack}")
    assert isinstance(stack, StackType)
    return tuple_type((stack, stack.element))


def _pop(stack: Array) -> Any:
    if not stack:
        raise GraphError("pop from an empty stack")
    return stack


def _push_rule(ct: Value, result: Value, stack: Value, x: Value) -> Any:
    return emit("pop", ct)


def _pop_rule(ct: Any, result: Value, stack: Value) -> Any:
    """Cotangents are pushed where values were popped; where there is none, zeros."""
    rest, x = ct
    if rest is None:
        rest = emit("stack", type=result[1].type)
    return (emit("push", rest, functions.zeros_like(result[1]) if x is None else x),)


stack = define(
    "stack",
    batch=constant,
    infer=lambda type: stack_type(type),
    reference=lambda type: (),
    lower=Structural(),
    attrs=(Attr("type", "type"),),
    doc="An empty stack of values of one type; it grows at run time. A stack is a linear value: "
    "it is read once, and what the reader returns stands for it from then on.",
    traits=Traits(makes_stack=True, distinct=True),
)

push = define(
    "push",
    batch=late,
    infer=_infer_push,
    reference=lambda stack, x: (stack, x),
    lower=Structural(),
    gradient=_push_rule,
    doc="The stack with one more value on top.",
    traits=Traits(push=True),
)

pop = define(
    "pop",
    batch=late,
    infer=_infer_pop,
    reference=_pop,
    lower=Structural(),
    gradient=_pop_rule,
    doc="The stack without the value on top, and that value. An empty stack is an error.",
    traits=Traits(pop=True),
)
