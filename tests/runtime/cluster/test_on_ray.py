"""Workers that Ray starts, on two nodes of this machine: one is killed, and training goes on."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError
from graphc.runtime.cluster import on_ray

X = np.random.default_rng(0).standard_normal((16, 16)).astype("f4")


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GraphError, match=r"(?s)Ray is not installed.*graphc\[ray\]"):
        gc.cluster.ray(workers=2)
    with pytest.raises(GraphError, match="1 to 64 workers"):
        gc.cluster.ray(workers=0)


def trained(cluster: Any, home: str, killed: bool = False) -> tuple[list[float], bytes]:
    """The losses of some steps and the weights after them; a worker is killed on the way."""
    start = np.random.default_rng(1).standard_normal((2, 16, 16)).astype("f4") / 4
    weights = [gc.Variable(w, f"w{k}", container=home) for k, w in enumerate(start)]

    @gc.compile(devices=cluster.devices, threads=1)
    def step(x: Any) -> Any:
        def loss(ws: Any) -> Any:
            h = x
            for task, w in enumerate(ws):
                with gc.device(f"/task:{task}"):
                    h = np.tanh(h @ w)
            return (h * h).mean()

        value, slopes = gc.value_and_grad(loss)([w.value for w in weights])
        for w, slope in zip(weights, slopes, strict=True):
            w.assign_add(-0.1 * slope)
        return value

    losses = []
    for number in range(6):
        if killed and number == 3:
            os.kill(cluster.pids[1], signal.SIGKILL)
        losses.append(float(step(X)))
    return losses, b"".join(np.asarray(w.value).tobytes() for w in weights)


def test_a_killed_worker_comes_back_and_training_goes_on() -> None:
    ray = pytest.importorskip("ray")
    pytest.importorskip("zmq")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    try:
        ray.init(address=nodes.address, log_to_driver=False)
        with pytest.raises(GraphError, match="Ray has 2 in all"):
            gc.cluster.ray(workers=3)
        with gc.cluster.ray(workers=2, retries=5, job="on_ray") as cluster:
            assert isinstance(cluster, on_ray.RayCluster)
            found = trained(cluster, "with_ray", killed=True)
            assert cluster.restarts == 1
    finally:
        ray.shutdown()
        nodes.shutdown()
    with gc.cluster.local(workers=2, job="beside_ray") as cluster:
        assert trained(cluster, "without_ray") == found
