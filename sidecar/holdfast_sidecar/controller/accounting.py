"""The leader's hand on a run's account: turns it once a second, and whenever something changes.

What is open and how steps are split is judged in `goodput`; the arithmetic is the store's. All that
must outlive this leader stands in the account.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.performance.goodput.accounting import (
    AccountInput,
    AccountState,
    completed,
    is_split_at_step,
    next_turn,
    stand,
)
from holdfast_sidecar.performance.goodput.splitting import StepListener, lost_time_of
from holdfast_sidecar.performance.summary import heard
from holdfast_sidecar.policy.attached import attached_run
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.account import CLOSED, MICRO, Account, parse_account
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.store.account import UNSEEN_AFTER_US, Turn, is_behind
from holdfast_sidecar.store.protocol import (
    ExchangeGuard,
    Lease,
    Section,
    Store,
    StoreUnavailable,
    View,
)

logger = logging.getLogger(__name__)

EVERY_S = 1.0
"""Scrapes come every few seconds, and a counter that stands still between two of them is no rate;
more often would ask the store for nothing."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""After a turn that the store did not make, twice as long after each more: one that is away is back
soon, one that forbids the script (an ACL of before it) forbids it for good, and each refusal costs
the subscription by which orders are heard at once."""

ASLEEP_AFTER_S = UNSEEN_AFTER_US / MICRO
"""Whoever did not look for so long saw nothing meanwhile."""


@dataclass
class AccountWatch:
    """Whether this sidecar saw what went on since the account was turned last.

    It did if it was awake all the time, and the attempt is what it was: Redis may have been away,
    its own ranks went on before its eyes. It is told of each reading, whether this sidecar leads or
    not: who leads after an outage is mostly another one.
    """

    is_unbroken: bool = False
    _at: str = ""
    _plan: tuple[int, str] | None = None
    _awake_s: float | None = None

    def read(self, at: str, plan: Plan | None, now_s: float) -> None:
        """The account was last turned then, under this plan."""
        was_awake = self._awake_s is not None and now_s - self._awake_s <= ASLEEP_AFTER_S
        stands = None if plan is None else (plan.attempt, plan.state)
        is_same = self._at == at and stands in (None, self._plan)
        self.is_unbroken = was_awake and (self._at != at or (self.is_unbroken and is_same))
        self._at, self._plan, self._awake_s = at, stands or self._plan, now_s

    def blink(self, now_s: float) -> None:
        """The store could not be asked."""
        if self._awake_s is None or now_s - self._awake_s > ASLEEP_AFTER_S:
            self.is_unbroken = False
        self._awake_s = now_s


@dataclass
class GoodputKeeping:
    """What one sidecar does about the account; `keep` is asked once per exchange while it leads."""

    store: Store
    _watch: AccountWatch = field(default_factory=AccountWatch)
    _seen: Mapping[str, str] = field(default_factory=dict)
    """The latest account that was ever read, or made, here; one that can't be read is none."""
    _listening: StepListener = field(default_factory=StepListener)
    _turned_s: float = float("-inf")
    """When it was turned here, if nobody else has turned it since."""
    _step_split: int = -1
    _guard: ExchangeGuard = field(default_factory=lambda: ExchangeGuard(logger))
    _refused: str = ""
    """Why the store did not turn it, which was said."""
    _pause_s: float = 0.0
    _asks_again_s: float = float("-inf")

    def witness(self, view: View, cluster: Cluster, now_s: float) -> View:
        """Whoever leads: remember what the store holds, should it be emptied. Answers the view with
        the latest account: until an emptied store has it back, no counter may fall."""
        fields = _readable(cluster)
        has_lost = is_behind(fields, self._seen)
        if not has_lost:
            if fields.get("at") != self._seen.get("at"):
                self._turned_s = float("-inf")  # somebody else has turned it since
            self._seen = fields
        self._watch.read(self._seen.get("at", ""), cluster.plan or attached_run(cluster), now_s)
        if not has_lost:
            return view
        sections = {**view.sections, Section.ACCOUNT: self._seen}
        return dataclasses.replace(view, sections=sections)

    def blink(self, now_s: float) -> None:
        """The store is away."""
        self._watch.blink(now_s)

    def keep(self, lease: Lease, cluster: Cluster, now_s: float, now_unix_s: float) -> None:
        """Turn the account if it is time. `cluster` is as this exchange leaves it.

        Raises nothing: an account that can't be kept is no reason to lead the job otherwise.
        """
        error = self._guard.run(lambda: self._keep(lease, cluster, now_s, now_unix_s))
        if isinstance(error, StoreUnavailable) and str(error) != self._refused:
            self._refused = str(error)
            logger.warning("can't write down where the run's time goes: %s", error)

    def _keep(self, lease: Lease, cluster: Cluster, now_s: float, now_unix_s: float) -> None:
        if now_s < self._asks_again_s:
            return
        has_lost = is_behind(_readable(cluster), self._seen)
        is_unreadable = bool(cluster.account_fields) and cluster.account is None
        account = parse_account(self._seen) if has_lost else cluster.account
        standing = stand(cluster, account)
        if not has_lost and not self._is_due(account, standing, now_s):
            return
        known = None if standing.is_anew else account
        heard_now = self._hear(known, lease, cluster, now_s, now_unix_s)
        turn = dataclasses.replace(
            next_turn(known, standing, cluster, heard_now),
            is_anew=standing.is_anew or is_unreadable,
            is_seen=self._watch.is_unbroken and _takes_part(lease, cluster),
            base=dict(self._seen) if has_lost and not standing.is_anew else {},
        )
        fields = self._turn(lease, turn, now_s)
        if fields:  # else somebody else leads by now
            self._seen, self._turned_s = fields, now_s
            self._step_split = completed(cluster) if is_split_at_step(turn) else -1
            if is_unreadable:
                logger.warning(
                    "where the run's time went can't be read in the store: %s", _anew(turn)
                )

    def _turn(self, lease: Lease, turn: Turn, now_s: float) -> Mapping[str, str]:
        try:
            fields = self.store.turn_account(lease, turn)
        except StoreUnavailable:
            self._pause_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), LONGEST_PAUSE_S)
            self._asks_again_s = now_s + self._pause_s
            raise
        self._pause_s, self._refused = 0.0, ""
        return fields

    def _is_due(self, account: Account | None, standing: AccountState, now_s: float) -> bool:
        if account is None or standing.is_anew:
            return True
        stood = (account.open, account.stage, account.gpus, account.run, account.attempt)
        stands = (standing.open, standing.stage, standing.gpus, standing.run, standing.attempt)
        if stood != stands:
            return True
        return standing.open != CLOSED and now_s - self._turned_s >= EVERY_S

    def _hear(
        self,
        account: Account | None,
        lease: Lease,
        cluster: Cluster,
        now_s: float,
        now_unix_s: float,
    ) -> AccountInput:
        """What ranks told of their steps, and the judge of who is slow; while they train only."""
        if account is None or not account.is_training:
            return AccountInput(now_unix_s)
        nodes = [node for node in cluster.nodes.values() if node.attempt == account.attempt]
        times = self._listening.follow(account.attempt, nodes)
        return AccountInput(
            now_unix_s,
            since_s=now_s - self._turned_s if self._turned_s > float("-inf") else 0.0,
            times=times,
            newest=self._listening.newest,
            toll_s=lost_time_of(heard(cluster.nodes.values(), lease.candidate)),
            step_split=self._step_split,
        )


def _readable(cluster: Cluster) -> Mapping[str, str]:
    """The account's fields; none where they are no account."""
    return {} if cluster.account is None else cluster.account_fields


def _anew(turn: Turn) -> str:
    return "the account is put back as it was seen last" if turn.base else "it is counted anew"


def _takes_part(lease: Lease, cluster: Cluster) -> bool:
    """Whether this node has ranks in the attempt, and so saw them while the store was away."""
    plan = cluster.plan or attached_run(cluster)
    node = lease.candidate.rpartition("/")[0]
    return plan is None or any(member.node == node for member in plan.members)
