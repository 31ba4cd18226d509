"""A standalone program for the web: the linked WebAssembly module, and a JavaScript module that
loads it.  Linking is left to LLVM's `wasm-ld`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from graphc.codegen.standalone.build import Standalone
from graphc.codegen.standalone.entry import MISALIGNED, entries_of, state_of
from graphc.codegen.standalone.header import arguments_of
from graphc.errors import STATUS, GraphError
from graphc.runtime.load.program import Slot

_STACK_BYTES = 1 << 20  # kernels keep tiles there
_MOST_BYTES = (1 << 32) - (1 << 26)  # of the memory that 32 bits reach
_SECONDS = 300
# Of 16-bit floats JavaScript has no arrays everywhere, of complex numbers none.
_ARRAYS = {
    "bool": "Uint8Array",
    "f16": "Uint16Array",
    "bf16": "Uint16Array",
    "f32": "Float32Array",
    "f64": "Float64Array",
    "c64": "Float32Array",
    "c128": "Float64Array",
    "i8": "Int8Array",
    "i16": "Int16Array",
    "i32": "Int32Array",
    "i64": "BigInt64Array",
    "u8": "Uint8Array",
    "u16": "Uint16Array",
    "u32": "Uint32Array",
    "u64": "BigUint64Array",
}


def linked(made: Standalone) -> bytes:
    """The WebAssembly module of a program. Raises GraphError where no linker is, or it fails, and
    for a program that needs more than 4 GiB."""
    image = made.image
    needed = image.arena_bytes + image.constants.nbytes + 2 * state_of(image).nbytes
    needed += sum(slot.nbytes for slot in (*image.params, *image.results))
    if needed > _MOST_BYTES:
        raise GraphError(f"{made.name} needs {needed} bytes, and WebAssembly has 4 GiB")
    linker = _linker()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "program.o"), Path(folder, "program.wasm")
        source.write_bytes(made.code)
        exports = [f"--export={symbol}" for symbol in entries_of(made.image, made.name)]
        options = [
            "--no-entry",
            "--export=__heap_base",
            "-z",
            f"stack-size={_STACK_BYTES}",
            "--stack-first",
        ]
        command = [linker, *options, *exports, str(source), "-o", str(target)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise GraphError(f"{linker} could not link {made.name}: {error}") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines()[:4]
            raise GraphError(f"{linker} could not link {made.name}", details=tuple(lines))
        return target.read_bytes()


def _linker() -> str:
    found = shutil.which("wasm-ld")
    if found is None:
        raise GraphError(
            "a .wasm file is linked by LLVM's wasm-ld, and there is none",
            hint="install the package lld, or write a .o file and link it elsewhere",
        )
    return found


def loader(made: Standalone) -> str:
    """The text of NAME.mjs."""
    params, results = arguments_of(made)
    image = made.image
    told = {
        "name": made.name,
        "workspace": image.arena_bytes,
        "state": state_of(image).nbytes,
        "params": [_told(n, s) for n, s in zip(params, image.params, strict=True)],
        "results": [_told(n, s) for n, s in zip(results, image.results, strict=True)],
        "reasons": {MISALIGNED: "memory is not aligned", **STATUS},
    }
    filled = {"NAME": made.name, "PROGRAM": json.dumps(told, indent=2)}
    return re.sub("NAME|PROGRAM", lambda match: filled[match[0]], _TEXT)


def _told(name: str, slot: Slot) -> dict[str, object]:
    size = slot.nbytes // _ITEM[_ARRAYS[slot.dtype]]
    return {
        "name": name,
        "dtype": slot.dtype,
        "shape": list(slot.shape),
        "array": _ARRAYS[slot.dtype],
        "length": size,
    }


_ITEM = {name: int("".join(filter(str.isdigit, name))) // 8 for name in set(_ARRAYS.values())}

_TEXT = """// Made by graphc. In Node:
//   const model = await load(await readFile("NAME.wasm"));
// in a browser:
//   const model = await load(await (await fetch("NAME.wasm")).arrayBuffer());
// then model.run({name: array, ...}) returns {name: array, ...}: typed arrays, row by row.
// f16 and bf16 are given as their bits, complex numbers as pairs, i64 and u64 as BigInt.

export const program = PROGRAM;

const arrays = {Int8Array, Int16Array, Int32Array, BigInt64Array, Uint8Array, Uint16Array,
                Uint32Array, BigUint64Array, Float32Array, Float64Array};
const ALIGNMENT = 64;

export async function load(bytes) {
  const {instance} = await WebAssembly.instantiate(bytes, {});
  return new Model(instance.exports);
}

class Model {
  constructor(exports) {
    this.exports = exports;
    let end = exports.__heap_base.value;
    const take = (bytes) => {
      const start = Math.ceil(end / ALIGNMENT) * ALIGNMENT;
      end = start + bytes;
      return start;
    };
    const places = (slots) => slots.map((s) => take(s.length * arrays[s.array].BYTES_PER_ELEMENT));
    this.params = places(program.params);
    this.results = places(program.results);
    this.pointers = take(4 * (program.params.length + program.results.length));
    this.state = take(program.state);
    this.workspace = take(program.workspace);
    const missing = end - exports.memory.buffer.byteLength;
    if (missing > 0) exports.memory.grow(Math.ceil(missing / 65536));
    const addresses = [...this.params, ...this.results];
    new Uint32Array(exports.memory.buffer, this.pointers, addresses.length).set(addresses);
    this.begin();
  }

  // Give the variables their first values (again).
  begin() {
    if (program.state) this.exports[`${program.name}_begin`](this.state);
  }

  // The memory of a parameter or result, as a typed array that is valid until the next call.
  view(slot, place) {
    return new arrays[slot.array](this.exports.memory.buffer, place, slot.length);
  }

  run(values) {
    program.params.forEach((slot, k) => {
      const value = values[slot.name];
      if (!(value instanceof arrays[slot.array]) || value.length !== slot.length) {
        throw new TypeError(`${slot.name} must be a ${slot.array} of length ${slot.length}`);
      }
      this.view(slot, this.params[k]).set(value);
    });
    const second = this.pointers + 4 * program.params.length;
    const call = this.exports[`${program.name}_call`];
    const status = call(this.pointers, second, this.state, this.workspace);
    const reason = program.reasons[status] ?? `status ${status}`;
    if (status) throw new Error(`${program.name}: ${reason}`);
    return Object.fromEntries(
      program.results.map((slot, k) => [slot.name, this.view(slot, this.results[k]).slice()]));
  }
}
"""
