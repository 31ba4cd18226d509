"""Programs without Python, run as their users run them: by C on this machine or an emulated one, by
JavaScript in Node.  All take and give files of raw values."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.base.record import replace
from graphc.codegen.standalone.build import Standalone, settings
from graphc.codegen.standalone.files import write
from graphc.config import Config
from graphc.frontend.compile.build import stages_of
from graphc.frontend.files.saved_variables import arrays_of
from graphc.ir.graph import Graph
from graphc.runtime.load.program import numpy_dtype

C_OPTIONS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic")
# How C programs of a system are made and run; None: this machine's own compiler.
SYSTEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cpu": ("cc", ()),
    "x86_64-linux": ("cc", ()),
    "aarch64-linux": ("aarch64-linux-gnu-gcc", ("qemu-aarch64",)),
    "wasm32": ("node", ("wasm-ld",)),
}


def need(target: str) -> None:
    """Skip the test where the tools for a system are not installed."""
    first, others = SYSTEMS[target]
    for tool in (first, *others):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def made(function: Any, arrays: Sequence[Any], target: str, folder: Path) -> Standalone:
    """Write the files of a compiled function for arrays like these into the folder."""
    return made_of(function.graph(*arrays), function.config, target, folder)


def made_of(graph: Graph, config: Config, target: str, folder: Path) -> Standalone:
    """Write the files of a graph, with the present values of its variables."""
    config = settings(replace(config, target=target))
    planned = stages_of(graph, config)[-1].value
    path = folder / ("program.wasm" if target == "wasm32" else "program.o")
    return write(planned, config, "program", path, arrays_of(graph))[0]


def run(program: Standalone, flat: Sequence[Any], target: str, folder: Path, calls: int = 1) -> Any:
    """The results of the last of so many calls, as flat arrays; or the status of a failed one."""
    given = (np.ascontiguousarray(a) for a in flat)
    (folder / "in.bin").write_bytes(b"".join(a.tobytes() for a in given))
    command = _in_node(program, folder) if target == "wasm32" else _in_c(program, folder, target)
    done = subprocess.run(
        [*command, str(calls)], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    status = int(done.stdout)
    if status:
        return status
    data, made, at = (folder / "out.bin").read_bytes(), [], 0
    for slot in program.image.results:
        piece = np.frombuffer(data[at : at + slot.nbytes], numpy_dtype(slot.dtype))
        made.append(piece.reshape(slot.shape))
        at += slot.nbytes
    return made


def _in_c(program: Standalone, folder: Path, target: str) -> list[str]:
    compiler, runner = SYSTEMS[target]
    image, name = program.image, program.name
    (folder / "main.c").write_text(
        _C.format(
            name=name,
            upper=name.upper(),
            params=_numbers(slot.nbytes for slot in image.params),
            results=_numbers(slot.nbytes for slot in image.results),
            begin=f"{name}_begin(state);" if image.variables else "",
        )
    )
    static = ("-static",) if runner else ()
    command = [compiler, *C_OPTIONS, *static, "main.c", f"{name}.o", "-lm", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    return [*runner, "./main"]


def _numbers(values: Any) -> str:
    listed = list(values)
    return f"{len(listed)}, {{{', '.join(map(str, listed)) or '0'}}}"


def _in_node(program: Standalone, folder: Path) -> list[str]:
    (folder / "main.mjs").write_text(_JAVASCRIPT.replace("NAME", program.name))
    return ["node", "main.mjs"]


_C = """
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct {{ int count; size_t bytes[4096]; }} Sizes;
static const Sizes params = {{{params}}}, results = {{{results}}};

static void *room(size_t bytes) {{
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
}}

static void take(void **to, const Sizes *sizes, FILE *file) {{
    for (int k = 0; k < sizes->count; k++) {{
        to[k] = room(sizes->bytes[k]);
        if (file && fread(to[k], 1, sizes->bytes[k], file) != sizes->bytes[k]) exit(3);
    }}
}}

int main(int count, char **words) {{
    static void *in[4096], *out[4096];
    if (count != 2) return 2;
    FILE *file = fopen("in.bin", "rb");
    take(in, &params, file);
    take(out, &results, NULL);
    void *state = room({upper}_STATE_BYTES), *workspace = room({upper}_WORKSPACE_BYTES);
    {begin}
    int32_t status = 0;
    for (int call = 0; call < atoi(words[1]) && !status; call++)
        status = {name}_call((const void *const *)in, out, state, workspace);
    printf("%d\\n", (int)status);
    FILE *made = fopen("out.bin", "wb");
    for (int k = 0; k < results.count; k++) fwrite(out[k], 1, results.bytes[k], made);
    return fclose(made);
}}
"""

_JAVASCRIPT = """
import {readFileSync, writeFileSync} from "node:fs";
import {load, program} from "./NAME.mjs";

const model = await load(readFileSync("NAME.wasm"));
const given = readFileSync("in.bin");
let at = 0;
const values = {};
for (const slot of program.params) {
  const kind = globalThis[slot.array], bytes = slot.length * kind.BYTES_PER_ELEMENT;
  values[slot.name] = new kind(new Uint8Array(given.subarray(at, at + bytes)).buffer);
  at += bytes;
}
let made, status = 0;
try {
  for (let call = 0; call < Number(process.argv[2]); call++) made = model.run(values);
} catch (error) {
  const found = Object.entries(program.reasons).find(([, text]) => error.message.includes(text));
  if (!found) throw error;
  status = found[0];
}
console.log(status);
const pieces = status ? [] : program.results.map((slot) => {
  const {buffer, byteOffset, byteLength} = made[slot.name];
  return new Uint8Array(buffer, byteOffset, byteLength);
});
writeFileSync("out.bin", Buffer.concat(pieces));
"""
