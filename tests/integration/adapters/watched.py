"""A rank's page in memory: orders are written into it as a sidecar would."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from holdfast.contract import page
from holdfast.contract.page import Order, OrderKind
from holdfast.recording.recorder import Recorder


class Watched:
    """What a callback's job writes to and hears from, and the checkpoints that come of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, attempt=0)

    def order(self, kind: OrderKind, step: int) -> None:
        """Arm it long before it is reached."""
        deadline_ns = time.monotonic_ns() + 60 * 10**9
        body, head = page.pack_order(Order(kind, 0, 1, step, deadline_ns, "aa"), 1)
        start = page.order_offset(kind)
        self.memory[start + 8 : start + 8 + len(body)] = body
        self.memory[start : start + 8] = head

    @property
    def reply(self) -> str:
        """How far the checkpoint that was ordered got."""
        reply = page.parse_reply(bytes(self.memory))
        return "" if reply is None else reply.state.name

    def saved(self, step: int) -> Path:
        """The checkpoint that was ordered for this step."""
        return self.root / page.checkpoint_name(step, "aa")

    def account(self, step: int) -> dict[str, Any]:
        """What this rank says of it."""
        account: dict[str, Any] = json.loads((self.saved(step) / "__0_account.json").read_text())
        return account
