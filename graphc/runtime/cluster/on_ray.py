"""`gc.cluster.ray`: workers that Ray starts, on the machines that it has.

Ray places and launches them, as tasks that serve until the cluster is closed; they join over TCP as
all do that somebody else has started (see `remote`), and no value of a step goes through Ray.
"""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import Any

from graphc.errors import GraphError
from graphc.runtime.cluster.local_workers import check_options, new_token
from graphc.runtime.cluster.remote_workers import RemoteCluster

_END_SECONDS = 10.0  # for a worker to end when it is told to


def library() -> ModuleType:
    """Ray. Raises GraphError where it is not installed."""
    try:
        import ray
    except ImportError:
        raise GraphError("Ray is not installed", hint="pip install 'graphc[ray]'") from None
    found: ModuleType = ray
    return found


def serve(address: str, token: str, task: int, threads: int) -> None:
    """What Ray runs: be a worker until the client says that it is enough."""
    from graphc.runtime.cluster.tcp_worker import TcpWorker

    TcpWorker(token, address, task, threads).serve()


class RayCluster(RemoteCluster):
    """Workers that Ray has started; a context manager, which ends them.

    devices    the names of their devices, for `devices=` and `gc.device`
    pids       the numbers of their processes, each on its machine
    """

    def __init__(self, engine: Any, starts: bool, cpus: float, **options: Any) -> None:
        self.engine, self.starts, self.cpus = engine, starts, cpus
        self.running: dict[int, Any] = {}  # the Ray task of each of ours
        host = engine.util.get_node_ip_address()
        super().__init__(f"tcp://{host}:0", new_token(), **options)

    def _started(self, count: int) -> list[Any]:
        for task in range(count):
            self._launch(task)
        return super()._started(count)

    def _launch(self, task: int) -> None:
        how = {"num_cpus": self.cpus, "max_retries": 0, "max_calls": 1}
        remote = self.engine.remote(**how, scheduling_strategy="SPREAD")(serve)
        self.running[task] = remote.remote(self.router.address, self.token, task, self.threads)

    def replace(self, worker: Any) -> None:
        """Have Ray start another one."""
        with suppress(Exception):  # it has ended already, in whatever way
            self.engine.cancel(self.running[worker.task], force=True)
        self._launch(worker.task)

    def close(self) -> None:
        """End the workers, and Ray if this has started it."""
        if self.is_closed:
            return
        super().close()
        running = [*self.running.values()]
        self.engine.wait(running, num_returns=len(running), timeout=_END_SECONDS)
        if self.starts:
            self.engine.shutdown()


def ray(
    workers: int = 2,
    *,
    address: str | None = None,
    cpus: float = 1.0,
    threads: int | None = None,
    job: str = "worker",
    patience: float = 2.5,
    retries: int = 0,
    encrypt: bool = True,
) -> RayCluster:
    """Have Ray start workers: `with gc.cluster.ray(workers=3) as cluster:`.

    address    of a Ray cluster; without it the one that `ray.init` has connected this process to,
               or that RAY_ADDRESS names, or a new one on this machine
    cpus       that Ray reserves for each worker

    encrypt    whether what workers send to one another is encrypted, or signed alone

    Other options are those of `local`.  Workers are spread over the machines; one that is lost is
    started again by Ray, wherever it has room.  Needs the extra `ray`.

    Raises GraphError without it, where Ray has not as many processors, and what `local` raises.
    """
    check_options(workers, job, patience, retries, encrypt)
    engine = library()
    starts = not engine.is_initialized()
    if starts:
        engine.init(address=address, include_dashboard=False, log_to_driver=False)
    has = engine.cluster_resources().get("CPU", 0)
    try:
        if workers * cpus > has:
            raise GraphError(
                f"{workers} workers with {cpus:g} processors each: Ray has {has:g} in all",
                hint="ask for fewer workers, or for less with cpus=",
            )
        options = {"workers": workers, "threads": threads or max(1, int(cpus)), "job": job}
        how = {"patience": patience, "retries": retries, "encrypts": encrypt}
        return RayCluster(engine, starts, cpus, **how, **options)
    except BaseException:
        if starts:
            engine.shutdown()
        raise
