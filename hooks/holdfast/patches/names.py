"""Putting a function of ours where scripts look for one of torch's: under each name it goes by, or
as a method of its class."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

Function = Callable[..., Any]


def replace(name: str, places: Sequence[Any], wrap: Callable[[Function], Function]) -> None:
    """Put the wrapped function, one and the same object, in all of these modules that have it under
    this name. The first is the one that defines it; a torch that lacks it is left as it is."""
    function = getattr(places[0], name, None)
    if function is None:
        return
    wrapper = wrap(function)
    for place in places:
        if getattr(place, name, None) is function:
            setattr(place, name, wrapper)


def call_after(
    owner: Any, name: str, is_compiling: Callable[[], bool], hook: Callable[[Any], None]
) -> None:
    """Call the hook with the object after this method of its class."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = method(self, *args, **kwargs)
        if not is_compiling():
            hook(self)
        return answer

    setattr(owner, name, wrapper)
