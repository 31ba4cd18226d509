"""`gc.cluster`: programs whose devices are other processes."""

from graphc.base.refusing import refuse_all
from graphc.runtime.cluster.local_workers import LocalCluster, local
from graphc.runtime.cluster.metrics import Metrics, metrics
from graphc.runtime.cluster.on_ray import RayCluster, ray
from graphc.runtime.cluster.remote_workers import RemoteCluster, from_environment

__all__ = [
    "LocalCluster",
    "Metrics",
    "RayCluster",
    "RemoteCluster",
    "from_environment",
    "local",
    "metrics",
    "ray",
]

refuse_all(__all__, globals())
