"""`gc.cluster`: programs whose devices are other processes."""

from graphc.runtime.cluster.local import LocalCluster, local

__all__ = ["LocalCluster", "local"]
