"""Whether a rank shall wait for another node to confirm its snapshots (peer copies in step)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wait:
    """One rank's, as judged at one tick."""

    shall_wait: bool = True
    unsafe_since_s: float | None = None
    """Since when a sealed snapshot has been without confirmation; None: none is."""
    safe: int = -1
    """Newest confirmed step."""


def judge(
    before: Wait, sealed: int, safe: int, is_paired: bool, now_s: float, timeout_s: float
) -> Wait:
    """A rank waits as long as its partner keeps up.

    It is let go when nothing was confirmed for `timeout_s`, or nobody would confirm; and it waits
    again once the partner has all there is, so that one slow copy doesn't stop it time and again.
    """
    is_behind = sealed > safe
    since_s = before.unsafe_since_s
    if not is_behind:
        since_s = None
    elif since_s is None or safe > before.safe:
        since_s = now_s
    if not is_paired:
        shall_wait = False
    elif before.shall_wait:
        shall_wait = since_s is None or now_s - since_s < timeout_s
    else:
        shall_wait = not is_behind
    return Wait(shall_wait, since_s, safe)
