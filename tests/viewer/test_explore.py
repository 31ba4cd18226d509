"""`graphc explore`: a server for one person, and an editor whose model appears beside it."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from browser import opened_at
from viewer_pages import data_of

import graphc as gc
from graphc.cli.commands import main
from graphc.cli.explore import MOST_PAGES, is_loopback, make_server, page_of_text

TOKEN = "a-secret-of-the-tests"
GIR = "gir 1\ngraph @f(%0 x: f32[4]) {\n  %1 = exp(%0) : f32[4]\n  return %1\n}\n"
PYTHON = """
import numpy as np
import graphc as gc

def model(x):
    return np.tanh(x) + 1

arguments = [gc.spec((4, 4), "f32")]
"""


@contextmanager
def running(text=GIR, kind=".gir"):
    server = make_server("127.0.0.1", 0, TOKEN, text, kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(server, method, path, body=None, **headers):
    line = http.client.HTTPConnection(*server.server_address)
    try:
        line.request(method, path, body, headers)
        reply = line.getresponse()
        return reply.status, reply.read().decode()
    finally:
        line.close()


def test_only_who_knows_the_secret_is_answered():
    with running() as server:
        for path in ("/", "/x/", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", "/page/1"):
            assert ask(server, "GET", path)[0] == 404
            assert ask(server, "POST", f"{path}compile", "{}")[0] == 404
        status, page = ask(server, "GET", f"/{TOKEN}/")
        assert status == 200 and "default-src 'none'" in page
        for host in ("evil.example", "evil.example:80", "10.0.0.1:8000", ""):  # DNS rebinding
            assert ask(server, "GET", f"/{TOKEN}/", Host=host)[0] == 404


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"text": 1}', '{"text": "", "options": 3}'])
def test_what_makes_no_sense_is_refused(body):
    with running() as server:
        assert ask(server, "POST", f"/{TOKEN}/compile", body)[0] == 400
        assert ask(server, "GET", f"/{TOKEN}/page/1")[0] == 404
        assert ask(server, "GET", f"/{TOKEN}/page/../../etc/passwd")[0] == 404
        assert ask(server, "PUT", f"/{TOKEN}/compile", body)[0] == 501


def test_pages_are_kept_for_a_while():
    with running() as server:
        for k in range(MOST_PAGES + 2):
            assert server.keep(str(k)) == k + 1
        assert ask(server, "GET", f"/{TOKEN}/page/1")[0] == 404
        assert ask(server, "GET", f"/{TOKEN}/page/{MOST_PAGES}") == (200, str(MOST_PAGES - 1))


def test_options_are_switches():
    page, trouble = page_of_text(GIR, ".gir", {"opt": 0, "devices": "cpu:0,cpu:1"})
    assert not trouble
    assert data_of(page)["options"]["opt"] == "0"
    for wrong in ({"opt": "2; rm"}, {"dump": "/tmp/x"}, {"devices": 3}, {"compress": "yes"}):
        assert page_of_text(GIR, ".gir", wrong)[0] == ""


def test_a_text_that_is_wrong_has_its_trouble_told():
    page, trouble = page_of_text(GIR.replace("exp", "nosuch"), ".gir", {})
    assert page == "" and "nosuch" in trouble and "Traceback" not in trouble


@pytest.mark.slow
def test_python_is_compiled_in_a_process_of_its_own():
    page, trouble = page_of_text(PYTHON, ".py", {"opt": 2})
    assert trouble == ""
    assert "np.tanh(x) + 1" in data_of(page)["sources"][0][1]
    assert "arguments" in page_of_text("x = 1", ".py", {})[1]


def test_others_are_let_in_with_a_secret_alone(capsys):
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("example")
    for token in ([], ["--token", "short"]):
        with pytest.raises(SystemExit) as found:
            main(["explore", "--host", "0.0.0.0", *token])
        assert found.value.code == 2
        assert "--token" in capsys.readouterr().err


def test_what_is_no_text_is_refused(tmp_path):
    gc.compile(lambda x: x + 1).save(tmp_path / "m.gir", np.ones(3))
    with pytest.raises(SystemExit) as found:
        main(["explore", str(tmp_path / "m.onnx")])
    assert found.value.code == 1


@pytest.mark.slow
def test_a_model_is_edited_in_a_browser():
    with running(PYTHON, ".py") as server, opened_at(server.address) as page:
        frame = page.frame_locator("#shown")
        frame.locator("#name").filter(has_text="model").wait_for()
        frame.locator("#tab-kernels").click()
        page.fill("#text", PYTHON.replace("np.tanh(x) + 1", "np.exp(x) * 3"))
        page.keyboard.press("Control+Enter")
        frame.locator("#kernels .item").filter(has_text="exp mul").wait_for()  # the view stays
        page.fill("#text", PYTHON.replace("return", "retrun"))
        page.keyboard.press("Control+Enter")
        page.locator("#trouble").filter(has_text="SyntaxError").wait_for()
