"""Every argument of what trains, feeds and steps, with values of other kinds: done, or refused by
a GraphError; never an error from inside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
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
    None,
    3,
    -1,
    0,
    1.5,
    np.nan,
    10**30,
    True,
    "x",
    [],
    (),
    {},
    [None],
    ["x"],
    object(),
)


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
        parallel.pipeline,
        function=loss,
        devices=D,
        chunks=2,
        schedule="1f1b",
        checkpoint="never",
        balance="time",
        stages=2,
        combine="mean",
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
        gc.Reader,
        files="a.npz",
        specs={"x": SPEC},
        batch=2,
        format="npz",
        epochs=1,
        shuffle=True,
        seed=1,
        ahead=1,
        part=(0, 1),
    ),
]
LEFT_TO_THE_LOSS = {"params"}


def trained(make: Callable[..., Any]) -> Callable[..., Any]:
    """An optimiser or a schedule is made, and used."""

    def use(**arguments: Any) -> None:
        made = make(**arguments)
        if isinstance(made, gc.optim.Optimiser):
            made.update(P, made.init(P), P)
        else:
            made(3)

    use.__name__ = make.__name__
    return use


def batches(**arguments: Any) -> None:
    list(gc.data.Loader(**arguments))


optim, DECAY = gc.optim, {"weight_decay": 0.1, "mask": {"w": True}}
CASES += [
    given(trained(optim.sgd), rate=0.1, **DECAY),
    given(trained(optim.momentum), rate=0.1, momentum=0.9, nesterov=True, **DECAY),
    given(trained(optim.nesterov), rate=0.1, momentum=0.9, **DECAY),
    given(trained(optim.adam), rate=0.1, beta1=0.9, beta2=0.9, epsilon=1e-8, **DECAY),
    given(trained(optim.adamw), rate=0.1, beta1=0.9, beta2=0.9, epsilon=1e-8, **DECAY),
    given(trained(optim.adagrad), rate=0.1, initial=0.0, epsilon=1e-8, **DECAY),
    given(
        trained(optim.rmsprop),
        rate=0.1,
        smoothing=0.9,
        epsilon=1e-8,
        momentum=0.9,
        centred=True,
        **DECAY,
    ),
    given(trained(optim.sgd().clipped), max_norm=1.0),
    given(trained(optim.sgd(weight_decay=0.1).masked), mask=None),
    given(trained(optim.constant), rate=0.1),
    given(trained(optim.linear), start=0.1, end=0.0, steps=9),
    given(trained(optim.cosine), start=0.1, steps=9, end=0.0),
    given(trained(optim.exponential), start=0.1, factor=0.9, steps=9, staircase=True),
    given(trained(optim.piecewise), boundaries=[2, 4], rates=[0.3, 0.2, 0.1]),
    given(trained(optim.warm_up), rate=0.1, steps=9, start=0.0),
    given(optim.linear(0.1, 0.0, 9), step=3),
    given(optim.piecewise([2], [0.1, 0.2]), step=3),
    given(optim.clip_by_global_norm, gradients=P, max_norm=1.0),
    given(optim.global_norm, tree=P),
    given(
        batches,
        source=[(B[0], 1)] * 4,
        batch=2,
        shuffle=True,
        seed=0,
        drop_last=True,
        prefetch=1,
        transform=lambda rows: rows,
    ),
    given(lambda **a: list(gc.data.arrays(**a)), tree=(B, B), batch=2, prefetch=1),
]


@pytest.mark.parametrize(
    ("function", "arguments"),
    CASES,
    ids=[f"{getattr(f, '__name__', 'made')}{k}" for k, (f, _) in enumerate(CASES)],
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


MODULES = (
    "nn",
    "nn.init",
    "nn.layouts",
    "optim",
    "data",
    "random",
    "linalg",
    "sparse",
    "summary",
    "cluster",
)
PLAIN = {
    "Bytes",
    "Callback",
    "History",
    "Layer",
    "LearningRateLogger",
    "Loaded",
    "Schedule",
    "load",
}


def _public() -> Iterator[tuple[str, Any]]:
    for name in dir(gc):
        if name not in PLAIN and callable(getattr(gc, name)):
            yield name, getattr(gc, name)
    for path in MODULES:
        module = functools.reduce(getattr, path.split("."), gc)
        own = [n for n in dir(module) if "_from_" in n or "_to_" in n or n.startswith("he_")]
        for name in getattr(module, "__all__", own):
            if name not in PLAIN and callable(found := getattr(module, name)):
                yield f"{path}.{name}", found


def test_no_public_name_takes_a_keyword_that_it_does_not_have() -> None:
    raised, count = {}, 0
    for name, function in _public():
        if isinstance(function, type) and issubclass(function, BaseException):
            continue
        count += 1
        try:
            function(nonsense=3)
            raised[name] = "taken"
        except gc.GraphError:
            pass
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raised[name] = repr(error)
    assert not raised
    assert count > 500


def test_a_layer_says_what_it_takes() -> None:
    with pytest.raises(
        gc.GraphError, match=r"Dense: .*'activation'\n  hint: it takes Dense\(inputs"
    ):
        gc.nn.Dense(3, 4, activation="relu")  # type: ignore[call-arg]
    with pytest.raises(gc.GraphError, match="did you mean patience"):
        gc.EarlyStopping("loss", patient=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gc.nn.Dense(-1, 3), "Dense: inputs must be a whole number from 1 on, got -1"),
        (lambda: gc.nn.Dense(3, 2.5), "Dense: outputs must be a whole number"),  # type: ignore[arg-type]
        (lambda: gc.nn.Conv(3, "4", 3), "Conv: outputs must be a whole number"),  # type: ignore[arg-type]
        (lambda: gc.nn.Embedding(0, 3), "Embedding: count must be a whole number"),
        (lambda: gc.nn.LSTM(3, True), "LSTM: hidden must be a whole number"),
        (lambda: gc.nn.BatchNorm(2.0), "BatchNorm: channels must be"),  # type: ignore[arg-type]
        (lambda: gc.nn.MultiHeadAttention(4, 0), "MultiHeadAttention: heads must be"),
        (lambda: gc.nn.Dense(3, 2)(B), "missing 1 required positional argument: 'x'"),  # type: ignore[call-arg]
    ],
)
def test_layers_check_their_sizes(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(gc.GraphError, match=message):
        make()
