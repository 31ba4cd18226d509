"""What a cluster does, for Prometheus: counted anyway, and looked at when somebody asks.

with gc.cluster.metrics(cluster, port=9464):        http://127.0.0.1:9464/metrics
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphc.errors import GraphError
from graphc.runtime.cluster.local_workers import LocalCluster

# name -> what it is, and where status() has it; counters end with _total
OF_CLUSTER = {
    "graphc_steps_total": ("Steps of the cluster.", "steps"),
    "graphc_step_seconds_total": ("Seconds that steps took.", "seconds"),
    "graphc_messages_total": ("Messages to workers that began steps.", "messages"),
    "graphc_restarts_total": ("Workers that were started again.", "restarts"),
}
OF_WORKERS = {
    "graphc_worker_sent_bytes_total": ("Bytes sent to other workers, by open programs.", "sent"),
    "graphc_worker_memory_bytes": ("Memory of the process.", "memory"),
    "graphc_worker_programs": ("Programs that it has.", "programs"),
}
OF_LINKS = {
    "graphc_link_bytes_total": ("Bytes through links in memory, by open programs.", "bytes"),
    "graphc_link_sender_wait_nanoseconds_total": ("Waits for room in a link.", "sender_waited"),
    "graphc_link_taker_wait_nanoseconds_total": ("Waits for a message.", "taker_waited"),
}


class Metrics:
    """A server that answers Prometheus until it is closed; a context manager."""

    def __init__(self, cluster: LocalCluster, port: int, host: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise GraphError(
                "metrics need prometheus-client", hint="pip install 'graphc[metrics]'"
            ) from None
        self.cluster = cluster
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as error:
            raise GraphError(f"cannot listen at {host}:{port}: {error}") from None
        self.address = f"http://{host}:{self._server.server_port}/metrics"

    def __repr__(self) -> str:
        return f"<metrics of /job:{self.cluster.job} at {self.address}>"

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Any]:
        """The numbers of now, as prometheus_client has them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = self.cluster.status()
        for name, (text, key) in OF_CLUSTER.items():
            made = CounterMetricFamily(name, text, labels=["job"])
            made.add_metric([status["job"]], status[key])
            yield made
        up = GaugeMetricFamily("graphc_worker_up", "Is the worker there?", labels=["job", "task"])
        for worker in status["workers"]:
            up.add_metric([status["job"], str(worker["task"])], worker["state"] == "ready")
        yield up
        for name, (text, key) in OF_WORKERS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            made = kind(name, text, labels=["job", "task"])
            for worker in status["workers"]:
                made.add_metric([status["job"], str(worker["task"])], worker[key] or 0)
            yield made
        for name, (text, key) in OF_LINKS.items():
            made = CounterMetricFamily(name, text, labels=["job", "source", "target"])
            for link in status["links"]:
                ends = str(link["source"]), str(link["target"])
                made.add_metric([status["job"], *ends], link[key])
            yield made


def metrics(cluster: LocalCluster, port: int = 0, host: str = "127.0.0.1") -> Metrics:
    """Answer Prometheus with what a cluster does; a context manager, `address` is the page.

    port   0 for any that is free
    host   this machine alone can ask, unless it is another address: nothing is encrypted there, and
           everybody who reaches it may read
    Needs the extra `metrics`.  Raises GraphError without it, and where nobody can listen.
    """
    if not isinstance(cluster, LocalCluster):
        raise GraphError(
            f"metrics takes a cluster, got {type(cluster).__name__}",
            hint="gc.cluster.local(workers=2) opens one",
        )
    if type(port) is not int or not isinstance(host, str):
        raise GraphError(f"metrics are at a host and a port, not at {host!r:.80}:{port!r:.80}")
    return Metrics(cluster, port, host)
