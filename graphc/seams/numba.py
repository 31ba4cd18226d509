"""Numba: its compiler for functions that only become a part of an object, in half the time.

    function, helpers -> typed and lowered by Numba -> LLVM IR, linked, optimised once

Numba makes every function callable from Python: it writes wrappers, optimises it with all that it
calls, and has machine code of it in memory, before a caller that inlines it goes the same way.
With `Part` the first call of `tanh(x @ x + 1) @ x` with `backend="numba"` takes 1.10 s instead of
1.50, a second model 0.39 s instead of 0.87.  Where a private part is gone `part` is `numba.njit`,
and `optimised` asks what that has compiled for its text.

Imported only where Numba is in use.
"""

from __future__ import annotations

from typing import Any

import numba

OWN = (  # what `Part` takes of Numba's libraries of code, besides what they promise
    "_linking_libraries",
    "_final_module",
    "_finalized",
    "_ensure_finalized",
    "_optimize_final_module",
    "_get_module_for_linking",
)


def optimised(library: Any) -> str:
    """The code of a compiled function and of all that it calls, optimised, as LLVM IR."""
    text: str = library.optimised() if hasattr(library, "optimised") else library.get_llvm_str()
    return text


def _quick() -> Any:
    """Numba's compiler with `Part` as its library of code; AttributeError or ImportError where a
    private part is gone.
    """
    from numba.core.codegen import AOTCodeLibrary
    from numba.core.compiler import Compiler
    from numba.core.registry import cpu_target

    class Part(AOTCodeLibrary):
        """The code of a function and of all that it calls, for others to link: it never runs."""

        def finalize(self) -> None:
            """Link what is called."""
            for library in dict.fromkeys(self._linking_libraries):
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
            self._finalized = True

        def optimised(self) -> str:
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
        def define_pipelines(self) -> Any:
            state = self.state
            state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
            codegen = state.targetctx.codegen()
            state.library = Part(codegen, state.func_id.func_qualname)  # type: ignore[no-untyped-call]
            return super().define_pipelines()  # type: ignore[no-untyped-call]

    probe = Part(cpu_target.target_context.codegen(), "probe")  # type: ignore[no-untyped-call]
    for name in OWN:
        getattr(probe, name)
    return Quick


def _part() -> Any:
    try:
        return numba.njit(error_model="numpy", pipeline_class=_quick())
    except (AttributeError, ImportError):
        return numba.njit(error_model="numpy")


part = _part()
