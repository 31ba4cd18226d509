"""Every argument of what trains on several devices, with values of other kinds: done, or refused by
a GraphError; never an error from inside."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError

P = {"w": np.ones((3, 2), "f4")}
B = np.ones((4, 3), "f4")
A = [np.ones((4, 2), "f4")] * 2
D = ("cpu:0", "cpu:1")
ITEM = np.ones(2, "f4")
SPEC = gc.spec((2,), "f32")
WRONG: tuple[Any, ...] = (
    None, 3, -1, 0, 1.5, np.nan, 10**30, True, "x", [], (), {}, [None], ["x"], object(),
)  # fmt: skip


def loss(params: Any, batch: Any) -> Any:
    return (batch @ params["w"]).sum()


def gradients(params: Any, batch: Any) -> Any:
    return gc.value_and_grad(loss)(params, batch)


def given(function: Callable[..., Any], /, **arguments: Any) -> Any:
    """What is called, and with which arguments."""
    return function, arguments


parallel = gc.parallel
CASES = [
    given(parallel.Synchronous, loss=loss, optimizer=gc.optim.sgd(), devices=D, params=P),
    given(parallel.Asynchronous, loss=loss, optimizer=gc.optim.sgd(), devices=D, params=P),
    given(parallel.all_reduce, values=A, devices=D, combine="sum"),
    given(parallel.reduce_to, values=A, devices=D, combine="sum"),
    given(parallel.reduce_scatter, values=A, devices=D, combine="sum"),
    given(parallel.all_gather, values=A, devices=D),
    given(parallel.all_to_all, values=A, devices=D),
    given(parallel.broadcast, value=A[0], devices=D),
    given(parallel.concurrent, function=loss, arguments=[(P, B)] * 2, in_flight=2),
    given(parallel.join, parts=A),
    given(parallel.on, name="cpu:0", layer=gc.nn.relu),
    given(
        parallel.pipeline, function=loss, devices=D, chunks=2, schedule="1f1b", checkpoint="never",
        balance="time", stages=2, combine="mean",
    ),
    given(parallel.pipeline, function=loss, devices=D, stages="auto", memory_limit=1e9),
    given(parallel.replicate, function=gradients, devices=D, replicas=2, combine="mean"),
    given(parallel.schedule, text="1f1b", stages=2, chunks=2, devices=2, checkpoint="never"),
    given(parallel.sizes, rows=4, parts=2),
    given(parallel.split, batch=B, parts=2),
    given(gc.data.permutation, count=4, seed=0, epoch=0),
    given(gc.data.Characters, text="abc"),
    given(gc.Queue, specs=SPEC, capacity=4, order="shuffle", window=2, seed=0),
    given(gc.Queue, specs=SPEC, capacity=4, order="bucket", boundaries=[2, 4]),
    given(gc.Queue(SPEC, order="priority").enqueue, item=ITEM, key=2),
    given(
        gc.Reader, files="a.npz", specs={"x": SPEC}, batch=2, format="npz", epochs=1, shuffle=True,
        seed=1, ahead=1, part=(0, 1),
    ),
]  # fmt: skip
LEFT_TO_THE_LOSS = {"params"}


@pytest.mark.parametrize(
    ("function", "arguments"), CASES, ids=[f"{f.__name__}{k}" for k, (f, _) in enumerate(CASES)]
)
def test_arguments_of_other_kinds(
    function: Any, arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function(**arguments)
    for name in arguments.keys() - LEFT_TO_THE_LOSS:
        for wrong in WRONG:
            with suppress(GraphError):
                function(**{**arguments, name: wrong})


@pytest.mark.parametrize("wrong", WRONG)
def test_clusters_of_other_kinds(wrong: Any) -> None:
    for function in (gc.measure_links, gc.cluster.metrics):
        with pytest.raises(GraphError, match="takes a cluster, got"):
            function(wrong)
