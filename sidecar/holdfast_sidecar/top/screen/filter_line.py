"""The line in which somebody writes what to look for; it stands in place of the keys meanwhile."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class FilterLine(Input):
    """Tells every change at once, by `Input.Changed`; Enter keeps the words, Escape drops them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop", show=False),
        Binding("tab,down", "submit", show=False),
    ]

    class Dropped(Message):
        """Nothing is looked for any more."""

    def __init__(self) -> None:
        super().__init__(placeholder="only rows with these words; a number is a rank, 8-15 several")

    def action_drop(self) -> None:
        """Forget the words."""
        self.value = ""
        self.post_message(self.Dropped())
