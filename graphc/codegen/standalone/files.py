"""The files of a standalone program, which appear together or not at all."""

from __future__ import annotations

from pathlib import Path

from graphc.codegen.standalone.build import Standalone, Values, standalone
from graphc.codegen.standalone.header import header
from graphc.codegen.standalone.web import linked, loader
from graphc.config import Config
from graphc.ir.graph import Graph, Program
from graphc.runtime.files.files import write_together


def write(
    program: Graph | Program, config: Config, name: str, path: Path, values: Values | None = None
) -> tuple[Standalone, list[Path]]:
    """Write a planned program as object code with a C header (.o), or as a WebAssembly module with
    its loader (.wasm); returns it and the files.

    Arguments as of `standalone`.  Raises GraphError, also where a file cannot be written.
    """
    made = standalone(program, config, name, values)
    is_web = path.suffix == ".wasm"
    text = loader(made) if is_web else header(made)
    code = linked(made) if is_web else made.code
    beside = path.with_suffix(".mjs" if is_web else ".h")
    write_together({path: code, beside: text.encode()})
    return made, [path, beside]
