"""Pages in a real browser: Debian's chromium, driven by playwright; tests skip without them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PICTURES = Path(__file__).parents[2] / "build" / "pictures"


@contextmanager
def opened(text: str, folder: Path) -> Iterator[Any]:
    """A page in a browser, once it is drawn."""
    path = folder / "page.html"
    path.write_text(text)
    with opened_at(path.as_uri()) as page:
        page.wait_for_selector("html[data-ready], pre.empty", state="attached")
        yield page


@contextmanager
def opened_at(address: str, ours: bool = True) -> Iterator[Any]:
    """What an address shows. A page of ours asks for nothing elsewhere and says nothing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page, said = browser.new_page(viewport={"width": 1400, "height": 860}), list[str]()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(f"{error} {error.stack}"))
        page.on("request", lambda asked: said.append(asked.url) if foreign(asked.url) else None)
        page.goto(address)
        yield page
        browser.close()
    assert not ours or said == []


def foreign(address: str) -> bool:
    """Does it lead to another machine?"""
    return not address.startswith(("file://", "http://127.0.0.1:"))


def picture(page: Any, name: str) -> None:
    """Keep a picture of what is shown, for people."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")
