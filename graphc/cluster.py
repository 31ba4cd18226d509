"""`gc.cluster`: programs whose devices are other processes."""

from graphc.runtime.cluster.local import LocalCluster, from_environment, local

__all__ = ["LocalCluster", "from_environment", "local"]
