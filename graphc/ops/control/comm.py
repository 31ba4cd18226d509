"""Messages between devices: what `partition` puts where a value crosses from one to another.

    cpu:0   %2 = tanh(%0)   send(%2) {c0} ─┐
    cpu:1                                  └─> %9 = recv() {c0}   %3 = neg(%9)

A send never waits.  A recv asks for its message as soon as its `after` edges allow (at the start
when it has none) and its device waits for it where the recv stands; a message without a value only
says that something has run.  Inside loops a channel hands on one message a round, first in, first
out.
"""

from __future__ import annotations

from typing import Any

from graphc.ir.op import Attr, Effect, Structural
from graphc.ir.traits import Traits
from graphc.ir.types import UNIT, AnyType, TupleType, Type
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import late
from graphc.ops.record.families import define, require


def _no_reference(*arrays: Array, **attrs: object) -> Any:
    raise AssertionError("messages are carried by the interpreter")


def _infer_send(*types: AnyType, channel: str, to: str) -> TupleType:
    require(len(types) <= 1, f"send takes at most one operand, got {len(types)}")
    for kind in types:
        require(
            isinstance(kind, Type),
            f"a {kind} cannot be sent",
            hint="a stack stays on its device; the parts of a tuple are sent one by one",
        )
    return UNIT


def _infer_recv(*, channel: str, type: Type | None, **attrs: str) -> AnyType:
    return UNIT if type is None else type


send = define(
    "send",
    batch=late,
    infer=_infer_send,
    reference=_no_reference,
    lower=Structural(),
    attrs=(Attr("channel", "str"), Attr("to", "str")),
    effect=Effect.COMM,
    variadic=True,
    differentiable=False,
    doc="Send a value, or just word that this point is reached, to another device; never waits.",
    traits=Traits(send=True),
)

recv = define(
    "recv",
    batch=late,
    infer=_infer_recv,
    reference=_no_reference,
    lower=Structural(),
    attrs=(Attr("channel", "str"), Attr("from", "str"), Attr("type", "type", None, optional=True)),
    effect=Effect.COMM,
    differentiable=False,
    doc="The value that a device sent on this channel; without a type, word that it was sent.",
    traits=Traits(recv=True),
)
