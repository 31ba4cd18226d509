"""Options and fixtures of the whole suite."""

from __future__ import annotations

import gc as collector
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import graphc as gc


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def pytest_configure() -> None:
    """Ctrl-C works in tests and their processes, even of a run in the background of a script."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Modules, tests and their parameters stay: the collector need not go over them again."""
    collector.collect()
    collector.freeze()
    collector.set_threshold(500_000, 20, 50)


_frozen = 0  # blocks of memory


@pytest.fixture(autouse=True, scope="module")
def _freeze_what_was_imported() -> None:
    """Nor over PyTorch and Numba, once a test has imported them: tests that collect are quick."""
    global _frozen
    if sys.getallocatedblocks() > 1.2 * _frozen:
        collector.collect()
        collector.freeze()
        _frozen = sys.getallocatedblocks()


@pytest.fixture(autouse=True, scope="session")
def _own_cache() -> None:
    """Tests share one object-code cache of their own, so that a second run is quick."""
    folder = Path(tempfile.gettempdir()) / f"graphc-test-cache-{os.getuid()}"
    os.environ.setdefault("GRAPHC_CACHE_DIR", str(folder))


_containers = count()


@pytest.fixture
def home() -> Iterator[Any]:
    """A container of variables for one test alone."""
    with gc.container(f"test_{next(_containers)}") as container:
        yield container
    container.reset()
