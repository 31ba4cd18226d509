"""Memory of a device for a share of a program; where there is none left, what takes most of it."""

from __future__ import annotations

from collections.abc import Iterator

from graphc.errors import LimitError
from graphc.runtime.cuda.interface import Driver
from graphc.runtime.cuda.result_memory import DeviceBlock, pool_of
from graphc.runtime.load.program import Image, Origin

SHOWN = 6  # tensors that an error names


class Memory:
    """Allocates for one image."""

    def __init__(self, driver: Driver, image: Image) -> None:
        self.driver = driver
        self.image = image

    def allocate(self, nbytes: int) -> int:
        """Device memory. Raises LimitError."""
        self.driver.enter()
        try:
            return self.driver.allocate(nbytes)
        except MemoryError:
            pool_of(self.driver).release()
        try:
            return self.driver.allocate(nbytes)
        except MemoryError:
            raise self._full(nbytes) from None

    def block(self, nbytes: int) -> DeviceBlock:
        """Device memory for an array of its own. Raises LimitError."""
        self.driver.enter()
        pool = pool_of(self.driver)
        try:
            return pool.take(nbytes)
        except MemoryError:
            raise self._full(nbytes) from None

    def _full(self, nbytes: int) -> LimitError:
        free, total = self.driver.room()
        largest = sorted(self._tensors(), key=lambda found: -found[0])[:SHOWN]
        location = next((origin.location for _, origin in largest if origin.location), None)
        return LimitError(
            f"no memory on {self.driver.name} for {shown(nbytes)}: {shown(free)} of {shown(total)} "
            f"are free; {self.image.name} needs {shown(self.image.arena_bytes)} besides its "
            "arguments and results",
            details=tuple(f"{shown(size)}  {_named(origin)}" for size, origin in largest),
            location=location,
        )

    def _tensors(self) -> Iterator[tuple[int, Origin]]:
        """Everything of a known size that lies in memory at once, with where it comes from."""
        image = self.image
        for slot in (*image.params, *image.results, *(v.slot for v in image.variables)):
            yield slot.nbytes, Origin(f"{slot.name}: {slot}")
        yield image.constants.nbytes, Origin("constants")
        yield from image.largest


def _named(origin: Origin) -> str:
    place = f"  ({origin.file}:{origin.line})" if origin.file else ""
    return origin.node + place


def shown(nbytes: int) -> str:
    """A number of bytes to read."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"
