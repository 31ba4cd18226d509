"""Options and fixtures of the whole suite."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture(autouse=True, scope="session")
def _own_cache() -> None:
    """Tests share one object-code cache of their own, so that a second run is quick."""
    folder = Path(tempfile.gettempdir()) / f"graphc-test-cache-{os.getuid()}"
    os.environ.setdefault("GRAPHC_CACHE_DIR", str(folder))
