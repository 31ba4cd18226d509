"""The C header of a standalone program: sizes, the entry, and a wrapper with typed arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphc.codegen.standalone.build import Standalone
from graphc.codegen.standalone.entry import MISALIGNED, state_of
from graphc.errors import STATUS
from graphc.runtime.load.program import Slot

# Of two halves of 16 bits C has no type that all compilers know, of complex numbers no simple one.
_C_TYPES = {
    "bool": "uint8_t",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
    "f64": "double",
    "c64": "float",
    "c128": "double",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
}
_NOTES = {
    "bool": "0 or 1",
    "f16": "bits of IEEE half precision",
    "bf16": "the upper 16 bits of a float",
    "c64": "pairs of real and imaginary part",
    "c128": "pairs of real and imaginary part",
}
_WORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while bool true false nullptr alignas alignof thread_local static_assert
    typeof constexpr class namespace template new delete this operator private public protected
    virtual try catch throw using friend and or not xor state workspace asm unix linux complex
    imaginary stdin stdout stderr errno environ
"""
_TAKEN = frozenset(_WORDS.split())
_OWN = ("run", "call", "begin", "reason", "h", "workspace_bytes", "state_bytes")


def identifier(text: str, fallback: str) -> str:
    """A C identifier that resembles a name, and that neither C nor its headers use for another
    thing: those in capitals are macros."""
    made = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:60]
    if not made or made[0].isdigit():
        made = f"{fallback}_{made}" if made else fallback
    return f"{made}_" if made.lower() in _TAKEN or made.isupper() else made


def arguments_of(made: Standalone) -> tuple[list[str], list[str]]:
    """Identifiers of the parameters and of the results."""
    params, results = made.image.params, made.image.results
    taken = {f"{made.name}_{own}".lower() for own in _OWN}

    def named(slots: Sequence[Slot], kind: str) -> list[str]:
        found_names = []
        for number, slot in enumerate(slots):
            plain = kind if len(slots) == 1 else f"{kind}{number}"
            # What has no name of its own is called by its number: "0", "1" ...
            found = plain if slot.name.isdigit() else identifier(slot.name, plain)
            while found.lower() in taken:
                found = f"{found}_{kind}{number}"
            taken.add(found.lower())
            found_names.append(found)
        return found_names

    return named(params, "argument"), named(results, "result")


def header(made: Standalone) -> str:
    """The text of NAME.h."""
    image, name = made.image, made.name
    upper, state = name.upper(), state_of(image).nbytes
    params, results = arguments_of(made)
    described = [
        *(f" *   {n}: {_described(s)}" for n, s in zip(params, image.params, strict=True)),
        " * and writes",
        *(f" *   {n}: {_described(s)}" for n, s in zip(results, image.results, strict=True)),
    ]
    typed = [
        *(f"const {_C_TYPES[s.dtype]} *{n}" for n, s in zip(params, image.params, strict=True)),
        *(f"{_C_TYPES[s.dtype]} *{n}" for n, s in zip(results, image.results, strict=True)),
        *(["void *state"] if state else []),
        "void *workspace",
    ]
    statuses = {
        0: "no error",
        MISALIGNED: "workspace or state begins at no multiple of 64",
        **STATUS,
    }
    reasons = "\n".join(f'        case {code}: return "{text}";' for code, text in statuses.items())
    return _TEXT.format(
        name=name,
        upper=upper,
        triple=made.target.triple,
        described="\n".join(described),
        workspace=image.arena_bytes,
        state=state,
        begin=f"void {name}_begin(void *state);\n" if state else "",
        typed=", ".join(typed),
        params=_array("const void *const", params),
        results=_array("void *const", results),
        given="state" if state else "0",
        reasons=reasons,
        about=_ABOUT_STATE.format(upper=upper, name=name) if state else "",
    )


def _described(slot: Slot) -> str:
    shape = " x ".join(map(str, slot.shape)) or "one value"
    note = _NOTES.get(slot.dtype)
    return f"{_C_TYPES[slot.dtype]}, {shape}{f' ({note})' if note else ''}"


def _array(kind: str, names: list[str]) -> str:
    return f"({kind}[]){{{', '.join(names)}}}" if names else "0"


_ABOUT_STATE = """ * Its variables live in `state`: {upper}_STATE_BYTES bytes that begin at
 * a multiple of 64 and are yours; {name}_begin gives them their first values.
"""

_TEXT = """/* Made by graphc for {triple}.
 *
 * {name}_run reads
{described}
 * each row by row without gaps, and returns 0 or a status ({name}_reason says what it means).
 * `workspace` are {upper}_WORKSPACE_BYTES bytes that begin at a multiple of 64; calls that run at
 * the same time need one each.
{about} */
#ifndef GRAPHC_{name}_H
#define GRAPHC_{name}_H

#include <stdint.h>

#define {upper}_WORKSPACE_BYTES {workspace}
#define {upper}_STATE_BYTES {state}

#ifdef __cplusplus
extern "C" {{
#endif

int32_t {name}_call(const void *const *params, void *const *results, void *state, void *workspace);
{begin}
#ifdef __cplusplus
}}
#endif

#ifndef __cplusplus
static inline int32_t {name}_run({typed}) {{
    return {name}_call({params}, {results}, {given}, workspace);
}}
#endif

static inline const char *{name}_reason(int32_t status) {{
    switch (status) {{
{reasons}
        default: return "unknown status";
    }}
}}

#endif
"""
