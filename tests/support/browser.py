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
def opened(text: str, folder: Path, width: int = 1400, height: int = 860) -> Iterator[Any]:
    """A page in a browser, once it is drawn. What its console says must be nothing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    path = folder / "page.html"
    path.write_text(text)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page, said = browser.new_page(viewport={"width": width, "height": height}), list[str]()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(f"{error} {error.stack}"))
        page.on(
            "request",
            lambda request: said.append(request.url) if "page.html" not in request.url else None,
        )
        page.goto(path.as_uri())
        page.wait_for_function(
            "document.documentElement.dataset.ready || document.querySelector('pre.empty')"
        )
        yield page
        browser.close()
    assert said == []


def picture(page: Any, name: str) -> None:
    """Keep a picture of what is shown, for people."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")
