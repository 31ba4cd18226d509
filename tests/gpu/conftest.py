"""Memory of a GPU is full of NaN before it is used, so that nobody counts on what lies there."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_harness import opened

from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.interface import COMPUTE


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = opened()
    allocate = driver.allocate

    def filled(nbytes: int) -> int:
        address = allocate(nbytes)
        poison = np.full(nbytes, 0xFF, np.uint8)
        driver.copy(address, address_of(poison), nbytes, COMPUTE)
        driver.synchronize(COMPUTE)
        return address

    monkeypatch.setattr(driver, "allocate", filled)
