"""Functions and methods that are put in the place of others."""

from __future__ import annotations

from types import SimpleNamespace

from holdfast.patches.names import call_after, replace


def test_each_place_that_has_the_function_gets_one_and_the_same_wrapper() -> None:
    def function() -> int:
        return 1

    home = SimpleNamespace(name=function)
    alias, own, without = (
        SimpleNamespace(name=function),
        SimpleNamespace(name=len),
        SimpleNamespace(),
    )
    replace("name", (home, alias, own, without), lambda function: lambda: function() + 1)
    assert home.name is alias.name
    assert home.name() == 2
    assert own.name is len
    assert not vars(without)


def test_what_its_home_lacks_is_nowhere_replaced() -> None:
    elsewhere = SimpleNamespace(name=len)
    replace("name", (SimpleNamespace(), elsewhere), lambda _: print)
    assert elsewhere.name is len


def test_the_hook_comes_after_the_method_and_never_inside_a_graph() -> None:
    heard: list[object] = []
    compiles = [False]

    class Thing:
        def __init__(self, number: int) -> None:
            self.number = number

    call_after(Thing, "__init__", lambda: compiles[0], lambda made: heard.append(made.number))
    Thing(3)
    compiles[0] = True
    assert Thing(number=4).number == 4
    assert heard == [3]
    assert Thing.__init__.__name__ == "__init__"
