"""`graphc explore`: the page of a model beside its text, which one edits.

The server is for one person: all it answers lies under a secret name, it listens on this machine
alone unless it is told otherwise, and everything is compiled in a process of its own with a limit
of time.  The page that shows a model may run its script and nothing else, as everywhere.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import subprocess
import sys
import tempfile
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

import click

from graphc.cli.common import MODEL
from graphc.errors import GraphError, plain

MOST_TEXT = 4 << 20  # characters of what is edited
SECONDS = 60  # that compiling may take
MOST_PAGES = 8  # that are kept
LEAST_TOKEN = 16
_NEW = """\
import numpy as np
import graphc as gc

def model(x, w):
    h = np.tanh(x @ w)
    return h / h.sum(axis=1, keepdims=True)

arguments = gc.spec((32, 64), "f32"), gc.spec((64, 16), "f32")
"""


@click.command("explore")
@click.argument("model", type=MODEL, required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any that is free.")
@click.option("--host", default="127.0.0.1", help="Another address than this machine's own.")
@click.option("--token", help="The secret in the address; made up by default.")
@click.option("--once", type=MODEL, hidden=True, help="Write the page of a Python file, and end.")
@click.option("--options", hidden=True, default="{}")
def explore_command(
    model: Path | None, port: int, host: str, token: str | None, once: Path | None, options: str
) -> None:
    """Edit MODEL (.gir, or a .py file) in a browser and see its stages and assembly change.

    A Python file defines a function and its `arguments`, a tuple of arrays or specs.  It runs, as
    any program of yours; a .gir file only computes.
    """
    if once is not None and model is not None:
        python_page(model, json.loads(options)).save(once)
        return
    if not is_loopback(host) and len(token or "") < LEAST_TOKEN:
        raise click.UsageError(
            f"--host {plain(host)} lets others in: it needs a --token of {LEAST_TOKEN} characters"
        )
    text, kind = _NEW, ".py"
    if model is not None:
        text, kind = text_of(model), model.suffix
    server = make_server(host, port, token or secrets.token_urlsafe(18), text, kind)
    click.echo(f"{server.address}  (Ctrl-C ends it)")
    try:
        server.serve_forever()
    finally:
        server.server_close()


def is_loopback(host: str) -> bool:
    """Is it an address that only this machine has?"""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def text_of(model: Path) -> str:
    """What is edited. Raises GraphError for a file that is no text of ours."""
    from graphc.frontend.files.gir_files import read_text

    if model.suffix not in (".gir", ".py"):
        raise GraphError(
            f"{model.name} cannot be edited as text",
            hint=f"graphc convert {model.name} -o model.gir, or graphc view {model.name}",
        )
    return read_text(model)


def python_page(path: Path, options: dict[str, Any]) -> Any:
    """The page of the function of a Python file, which runs. Raises GraphError for one without."""
    import runpy
    from types import FunctionType

    from graphc.frontend.compile.decorator import CompiledFunction, compile

    space = runpy.run_path(str(path))
    own = [v for v in space.values() if getattr(v, "__module__", "") == "<run_path>"]
    found = [f for f in own if isinstance(f, FunctionType | CompiledFunction)]
    compiled = [f for f in found if isinstance(f, CompiledFunction)]
    if not found or not isinstance(space.get("arguments"), tuple | list):
        raise GraphError(
            "the file defines no function, or no arguments for it",
            hint='arguments = gc.spec((32, 64), "f32"), ...  (the last function is compiled)',
        )
    return compile((compiled or found)[-1], **options).view(*space["arguments"])


# ------------------------------------------------------------------------------------ compiling

_SWITCHES: dict[str, Any] = {
    "opt": lambda value: value in (0, 1, 2),
    "threads": lambda value: isinstance(value, int) and 0 <= value <= 64,
    "devices": lambda value: isinstance(value, str) and len(value) < 200,
    "backend": lambda value: value in ("llvm", "numba"),
    **dict.fromkeys(("compress", "fast_math", "check_finite"), lambda value: value is True),
}


def page_of_text(text: str, kind: str, options: dict[str, Any]) -> tuple[str, str]:
    """(page, trouble) of an edited text, one of them empty; made in a process of its own."""
    wrong = [n for n, value in options.items() if n not in _SWITCHES or not _SWITCHES[n](value)]
    if wrong:
        return "", f"error: {plain(wrong[0])} cannot have this value"
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, f"model{kind}"), Path(folder, "page.html")
        source.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "graphc", *_arguments(source, target, options)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return "", f"error: it took more than {SECONDS} seconds"
        if done.returncode or not target.exists():
            said = done.stderr.strip() or f"the compiler ended with status {done.returncode}"
            return "", said[-4000:].replace(f"{folder}/", "")
        return target.read_text(encoding="utf-8"), ""


def _arguments(source: Path, target: Path, options: dict[str, Any]) -> list[str]:
    if source.suffix == ".py":
        if "devices" in options:
            options = {**options, "devices": options["devices"].replace(" ", "").split(",")}
        return ["explore", str(source), "--once", str(target), "--options", json.dumps(options)]
    flags = [f"--{n.replace('_', '-')}" for n, value in options.items() if value is True]
    named = [f"--{n}={value}" for n, value in options.items() if value is not True]
    return ["view", str(source), "-o", str(target), *flags, *named]


# ------------------------------------------------------------------------------------ serving


class Server(ThreadingHTTPServer):
    """One model, what it may be told, and the pages that were made of it."""

    daemon_threads = True

    def __init__(self, at: tuple[str, int], token: str, text: str, kind: str) -> None:
        super().__init__(at, Handler)
        self.token, self.text, self.kind = token, text, kind
        self.pages: OrderedDict[int, str] = OrderedDict()
        self.count = 0
        self.lock = Lock()  # one compilation at a time

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/{self.token}/"

    def keep(self, page: str) -> int:
        self.count += 1
        self.pages[self.count] = page
        while len(self.pages) > MOST_PAGES:
            self.pages.popitem(last=False)
        return self.count


def make_server(host: str, port: int, token: str, text: str, kind: str) -> Server:
    """The server, which listens already. Raises GraphError for an address that cannot be had."""
    try:
        return Server((host, port), token, text, kind)
    except OSError as error:
        raise GraphError(f"cannot listen on {plain(host)}:{port}: {error.strerror}") from None


class Handler(BaseHTTPRequestHandler):
    """TOKEN/ is the editor, TOKEN/compile makes a page, TOKEN/page/N is one."""

    server: Server
    server_version, sys_version = "graphc", ""

    def do_GET(self) -> None:
        path = self.path_below()
        if path == "":
            from graphc.viewer.page import editor

            start = {"text": self.server.text, "kind": self.server.kind}
            self.answer(200, "text/html", editor(start))
            return
        number = (path or "").removeprefix("page/")
        page = self.server.pages.get(int(number)) if number.isdecimal() else None
        self.answer(200 if page else 404, "text/html", page or "")

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        if self.path_below() != "compile" or not size.isdecimal() or int(size) > MOST_TEXT:
            self.answer(404, "text/plain", "")
            return
        try:
            asked = json.loads(self.rfile.read(int(size)))
            text, options = str(asked["text"]), dict(asked["options"])
        except (ValueError, KeyError, TypeError):
            self.answer(400, "text/plain", "")
            return
        with self.server.lock:
            page, trouble = page_of_text(text, self.server.kind, options)
            number = self.server.keep(page) if page else 0
        self.answer(200, "application/json", json.dumps({"page": number, "trouble": trouble}))

    def path_below(self) -> str | None:
        """What is asked for behind the token; nothing for who does not know it, or comes by
        another name than this machine's (a foreign page that had its own name lead here)."""
        first, _, rest = self.path.removeprefix("/").partition("/")
        known = hmac.compare_digest(first.encode(), self.server.token.encode())
        host = self.headers.get("Host", "").rpartition(":")[0].strip("[]")
        own = str(self.server.server_address[0])
        is_own = host == own or (is_loopback(own) and is_loopback(host))
        return rest if known and (is_own or not is_loopback(own)) else None

    def answer(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(data))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Requests are nobody's news."""
