"""glibc: which features of the CPU it found usable."""

from __future__ import annotations

import ctypes


def usable_features() -> list[int]:
    """Bits of the features that glibc found usable: under Valgrind not all that the CPU has.

    They are a part of the key under which LLVM's answers about the CPU are kept, which saves the
    first call 16 ms of loading LLVM.  Where the function is gone there are none: /proc/cpuinfo is
    the key alone, and only an emulator could be taken for the machine it runs on.
    """
    try:
        leaf = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf
    except (AttributeError, OSError, TypeError):
        return []
    leaf.restype = ctypes.POINTER(ctypes.c_uint32 * 8)  # what the CPU has, and what is usable
    return [word for number in range(3) for word in leaf(number).contents[4:]]
