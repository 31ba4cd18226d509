"""Numba's compiler for functions that only become a part of an object, in less time.

    function, helpers -> typed and lowered by Numba, few passes -> LLVM IR, linked, optimised once

Numba makes every function callable from Python: it writes wrappers, optimises it with all that it
calls, and has machine code of it in memory, before a caller that inlines it goes the same way.  And
it runs two dozen passes, many of them for what functions of ours have none of: closures, functions
that are inlined in Python, `literally`, parts in object mode.

Imported only where Numba is in use.
"""

from __future__ import annotations

import copy
from typing import Any

import numba
from numba.core import typed_passes, untyped_passes
from numba.core.codegen import AOTCodeLibrary
from numba.core.compiler import Compiler

from graphc.codegen.numba.passes import unneeded

OURS = ("graphc.", "<dynamic>")  # the modules of our functions, and of generated ones
_UNNEEDED = unneeded(typed_passes, untyped_passes)


class Part(AOTCodeLibrary):
    """The code of a function and of all that it calls, for others to link: it never runs itself."""

    def finalize(self) -> None:
        """Link what is called."""
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def optimised(self) -> str:
        """All of it, optimised, as LLVM IR."""
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        self._optimize_final_module()  # type: ignore[no-untyped-call]
        return str(self._final_module)

    def get_pointer_to_function(self, name: str) -> int:
        return 0  # nowhere in memory

    @property
    def codegen(self) -> Part:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """There is no code that could look for its environment."""


class Quick(Compiler):
    """The compiler of such functions."""

    def define_pipelines(self) -> Any:
        state = self.state
        state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        name = state.func_id.func_qualname
        state.library = Part(state.targetctx.codegen(), name)  # type: ignore[no-untyped-call]
        (full,) = super().define_pipelines()  # type: ignore[no-untyped-call]
        if not state.func_id.modname.startswith(OURS):
            return [full]
        short = copy.copy(full)
        short.passes = [item for item in full.passes if item[0] not in _UNNEEDED]
        return [short, full]


part = numba.njit(error_model="numpy", pipeline_class=Quick)
