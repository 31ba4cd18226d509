""".gcx files as what runs, without a compiler.

`gcx_reader` reads and checks them, `gcx_writer` writes them and says what lies where in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from graphc.base.record import replace
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.open_executable import OpenExecutable
from graphc.runtime.call.phased_executable import Runnable
from graphc.runtime.call.variable import names_of_own
from graphc.runtime.devices.device import check_host
from graphc.runtime.devices.multi_device import executable
from graphc.runtime.files.gcx_phases import PhasedFile, with_bodies
from graphc.runtime.files.gcx_reader import FORMAT, File, Source
from graphc.runtime.load.program import UNLIMITED, Image, with_containers


def load(path: str | Path, *, threads: int | None = None) -> Runnable:
    """A .gcx file as an Executable, which shares the variables of this program."""
    return opened(Path(path), threads, True)[0]


def opened(
    source: Path | Source,
    threads: int | None,
    share: bool | str | Iterable[str],
    key: bytes | None = None,
    stack_bytes: int = UNLIMITED,
) -> tuple[Runnable, dict[str, str]]:
    """A .gcx file, or its bytes, as an Executable. With it the containers of its variables: as the
    file calls them and as they are called here.

    Variables that are not there yet are made, with the values that were saved.  Raises GraphError
    for a damaged file, for one that was not signed with the key, if there is one, and for code that
    nothing here can execute.
    """
    file = File(source, key)
    phases = PhasedFile(file) if file.format == FORMAT and "phased" in file.metadata else None
    images = [[file.image()]] if phases is None else phases.images
    every = [each for own in images for image in own for each in image.images]
    for each in every:
        if not each.on_gpu:  # whether there is such a GPU turns out where it is opened
            check_host(each.triple, each.cpu, each.features)
    names = names_of_own((found.container for each in every for found in each.variables), share)

    def make(image: Image) -> Executable | OpenExecutable:
        if image.formulas is not None:
            return OpenExecutable(image, lambda each: executable(each, threads=threads))
        return executable(image, threads=threads)

    def adopted(image: Image) -> Image:
        image = with_containers(with_bodies(image, make), names)
        return replace(image, stack_bytes=min(stack_bytes, image.stack_bytes))

    images = [list(map(adopted, own)) for own in images]
    if phases is not None:
        phases.make_variables(images)
        return phases.executable(images, make), names
    file.make_variables(images[0][0])
    return make(images[0][0]), names


def read(path: str | Path) -> Image:
    """The image in a .gcx file, not yet checked against this machine."""
    return File(Path(path)).image()


def text_of(path: str | Path, key: bytes | None = None) -> str:
    """The gir text in a .gcx file, signed with this key: what `--rebuild` compiles again."""
    file = File(Path(path), key)
    try:
        return bytes(file.tensor("text", "U8")).decode()
    except UnicodeDecodeError:
        raise file.damaged("its text") from None


def devices_of(path: str | Path) -> tuple[str, ...]:
    """The devices that a .gcx file was compiled for, the first one first."""
    file = File(Path(path))
    try:
        return tuple(str(share["device"]) for share in file.shares())
    except (KeyError, TypeError):
        raise file.damaged("its metadata is incomplete") from None
