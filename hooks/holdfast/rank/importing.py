"""Being told when a module is imported, so that nothing is imported before the script does it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` itself would cost every interpreter start a millisecond or two
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def watch(name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call `before` when the module starts to be imported and `after` once it is complete."""
    sys.meta_path.insert(0, ImportWatch(name, before, after))


def is_watched(name: str) -> bool:
    """Whether somebody here is to be told of this module's import."""
    watches = (finder for finder in sys.meta_path if isinstance(finder, ImportWatch))
    return any(one.name == name for one in watches)


def once(name: str, then: Callable[[], None]) -> None:
    """Call `then` once the module is imported: now, when it is already."""
    if name in sys.modules:
        then()
    else:
        watch(name, before=lambda: None, after=then)


class ImportWatch:
    """A finder that finds nothing itself: it lets the others find, and listens to the loading."""

    def __init__(self, name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
        self.name = name
        self._before = before
        self._after = after

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders answer for our module; nothing for any other."""
        if name != self.name:
            return None
        # Those before this one found nothing. Of those after it others may watch the same module.
        place = sys.meta_path.index(self) + 1 if self in sys.meta_path else 0
        for finder in sys.meta_path[place:]:
            find = getattr(finder, "find_spec", None)
            if find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                self._listen(spec.loader)
                return spec
        return None

    def _listen(self, loader: object) -> None:
        """Shadow one method of the loader, which so stays what it is.

        A loader of our own in its place would lack what else modules ask of theirs (resources,
        source). One that takes no attributes is left alone, and the module unwatched.
        """
        execute = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__"):
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            self._before()
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._after()

        vars(loader)["exec_module"] = exec_module
