"""Which code is ours, for the compiler to leave alone."""

from __future__ import annotations

import functools
from types import ModuleType

from holdfast.patches.untraced import codes, is_ours


def planted(text: str) -> ModuleType:
    module = ModuleType("planted")
    exec(text, vars(module))
    return module


def test_functions_methods_properties_and_what_is_within_them_are_ours() -> None:
    module = planted(
        """
def outer():
    def inner():
        return lambda: 0
    return inner

class Thing:
    @property
    def known(self): return 1
    @classmethod
    def made(cls): return cls()
    @staticmethod
    def plain(): return 2
    def method(self): return [number for number in ()]
"""
    )
    names = {code.co_name for code in codes([module])}
    assert {"outer", "inner", "<lambda>", "known", "made", "plain", "method"} <= names


def test_what_a_module_only_imports_is_not_ours() -> None:
    module = planted("import functools\nfrom functools import lru_cache, partial\n")
    assert functools.lru_cache.__code__ not in set(codes([module]))
    assert list(codes([module])) == []


def test_a_script_whose_name_begins_like_ours_is_compiled_as_ever() -> None:
    ours = ("holdfast", "holdfast.guard", "holdfast.patches.untraced")
    assert all(map(is_ours, ours))
    assert not any(map(is_ours, ("holdfast_train", "holdfast_sidecar", "torch", "__main__")))
