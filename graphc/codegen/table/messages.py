"""Channels of a program and the rows of `send` and `recv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.place import Buffer
from graphc.ir.regions import scheduled_graphs
from graphc.ir.types import Type
from graphc.runtime.load.program import Channel

if TYPE_CHECKING:
    from graphc.codegen.table.steps import TableWriter


def channels_of(graphs: Sequence[Graph], donates: bool) -> dict[str, Channel]:
    """The channels of planned graphs, one per device, in a fixed order.

    A value stays where it is until the run ends (see `last_reads`), unless it is sent from a region
    or lies where something else may be written later: such channels are buffered.  Their bytes may
    be open sizes.
    """
    found: dict[str, Channel] = {}
    sends = messages(graphs, sent=True)
    recvs = messages(graphs, sent=False)
    for name in sends.keys() | recvs.keys():
        if name not in sends or name not in recvs:
            raise GraphError(f"channel {name} has a send or a recv alone")
    for name, (source, node, inside) in sends.items():
        target, recv, _ = recvs[name]
        if message_bytes(node) != message_bytes(recv):
            raise GraphError(f"channel {name} has two types", details=(repr(node), repr(recv)))
        buffered = inside or is_overwritten(node, donates)
        found[name] = Channel(name, message_bytes(node), source, target, buffered)
    return found


def messages(graphs: Sequence[Graph], sent: bool) -> dict[str, tuple[int, Node, bool]]:
    """Channel -> (number of the device, node, whether it stands in a region)."""
    return {
        node.attrs["channel"]: (number, node, graph is not device)
        for number, device in enumerate(graphs)
        for graph in scheduled_graphs(device)
        for node in graph.nodes
        if (node.op.traits.send if sent else node.op.traits.recv)
    }


def message_bytes(node: Node) -> int:
    """The bytes that a send or recv carries."""
    kind = node.inputs[0].type if node.inputs else node.type
    return kind.nbytes if isinstance(kind, Type) else 0


def is_overwritten(send: Node, donates: bool) -> bool:
    """May the memory of a sent value be written again in the same run?"""
    place = send.inputs[0].place if send.inputs else None
    base = place.regions[0].base if isinstance(place, Buffer) else ""
    return base.startswith("v") or (base.startswith("p") and donates)


def send_rows(writer: TableWriter, node: Node) -> None:
    source = writer.place(node.inputs[0]) if node.inputs else writer.scope["arena"]
    channel = writer.channels[node.attrs["channel"]]
    writer.note(writer.table.send(message_bytes(node), channel, source), node)


def recv_rows(writer: TableWriter, node: Node) -> None:
    target = writer.place(node) if isinstance(node.type, Type) else writer.scope["arena"]
    channel = writer.channels[node.attrs["channel"]]
    writer.note(writer.table.wait(message_bytes(node), channel, target), node)
