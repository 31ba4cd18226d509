"""A table whose entries are written by modules that are imported when one of them is asked for.

table.expect({"exp": "families.exponentials"})
table["exp"]      imports that module, which writes it, and others
list(table)       imports every module that is expected to write something

Entries come in the order in which they were expected, whatever was imported first; others follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LateTable(dict[K, V]):
    """A dict that is as if all that is expected had been written; no entry is None."""

    def __init__(self) -> None:
        super().__init__()
        self._modules: dict[Any, str] = {}
        self._places: dict[Any, int] = {}

    def expect(self, modules: Mapping[Any, str]) -> None:
        """Say which module writes an entry of a name."""
        self._modules.update(modules)
        for name in modules:
            self._places.setdefault(name, len(self._places))

    def forget(self) -> None:
        """Expect nothing more."""
        self._modules.clear()

    def bring(self, key: K) -> None:
        """Import the module that writes the entry of a key."""
        module = self._modules.get(key)  # in one look: another thread may bring the whole
        if module is not None:
            import_module(module)

    def whole(self) -> None:
        """Import every module that is expected to write an entry."""
        for module in dict.fromkeys(self._modules.values()):
            import_module(module)
        self.forget()  # not before: other threads may come here meanwhile

    def __missing__(self, key: K) -> V:
        self.bring(key)
        if dict.__contains__(self, key):
            return self[key]
        raise KeyError(key)

    def get(self, key: K, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        self.whole()
        return super().__len__()

    def __iter__(self) -> Iterator[K]:
        return iter(self._in_order())

    def keys(self) -> Any:
        return self._in_order().keys()

    def values(self) -> Any:
        return self._in_order().values()

    def items(self) -> Any:
        return self._in_order().items()

    def _in_order(self) -> dict[K, V]:
        self.whole()
        entries, last = list(super().items()), len(self._places)
        entries.sort(key=lambda entry: self._places.get(self.name(entry[0]), last))
        return dict(entries)

    def name(self, key: Any) -> Any:
        """What a key is expected under."""
        return key


class LateTableOfNumpy(LateTable[Any, V]):
    """By functions of NumPy, expected under their full names."""

    def name(self, key: Any) -> Any:
        return name_in_numpy(key)

    def bring(self, key: Any) -> None:
        home: str = getattr(key, "__module__", None) or ""
        if home.partition(".")[0] != "numpy" or isinstance(key, type):
            return
        if (name := name_in_numpy(key)) in self._modules:
            super().bring(name)
        else:  # no two versions of NumPy have the same names
            self.whole()


def name_in_numpy(function: Any) -> str:
    """The full name of a function of NumPy."""
    return f"{function.__module__}.{getattr(function, '__name__', '')}"
