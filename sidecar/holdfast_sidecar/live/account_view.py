"""Where the run's time went, as a live view shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.performance.goodput.costs import ettr, goodput
from holdfast_sidecar.records.account import MICRO, PENDING, Account


@dataclass(frozen=True)
class AccountView:
    """Empty and None until it is known."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Category -> seconds; `pending`: training whose steps have not ended yet."""
    lost_s: float | None = None
    goodput: float | None = None
    ettr: float | None = None


def account_of(account: Account | None) -> AccountView:
    """What stands in the account."""
    if account is None:
        return AccountView()
    told = {**account.micros, PENDING: account.pending_us}
    return AccountView(
        {name: micros / MICRO for name, micros in told.items() if micros > 0},
        account.lost_us / MICRO,
        goodput(account),
        ettr(account),
    )
