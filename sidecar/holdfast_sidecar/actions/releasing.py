"""Under plain torchrun: ends ranks that hold SIGTERM once torchrun would have ended them by it.

Our own launcher does that itself, at once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from holdfast.ending_processes import signal_handle
from holdfast.page import END_SIGNAL, Ending, Flag, Word, parse_words
from holdfast.permit import Handle, Licence, NotPermitted, Permit
from holdfast_sidecar.observation import RankHistory
from holdfast_sidecar.pages import RankPage
from holdfast_sidecar.records.plan import Plan

logger = logging.getLogger(__name__)


def release(
    plan: Plan | None, pages: Iterable[RankPage], histories: Mapping[int, RankHistory]
) -> bool:
    """End the held ranks of an attempt that is over; whether any was still there.

    histories: of the ranks, by rank, as the loop last looked at them.
    """
    held = [(page, parse_words(page.read())) for page in pages]
    attempts = {
        page.identity.attempt
        for page, words in held
        if _ended_badly(page, words, histories.get(page.identity.rank))
    }
    released = False
    for page, words in held:
        try:
            permit = released_by(plan, page, words, attempts)
            signal_handle(permit)
        except (NotPermitted, ProcessLookupError):
            continue
        logger.info("ended rank %d: %s", page.identity.rank, permit.proof)
        released = True
    return released


def released_by(
    plan: Plan | None, page: RankPage, words: tuple[int, ...], failed: Collection[int]
) -> Permit:
    """To end a rank that holds SIGTERM, as that would have ended it. Raises NotPermitted.

    failed: attempts that torchrun takes down, one of their ranks having failed.
    """
    who = page.identity
    if not words[Word.FLAGS] & Flag.HOLDS_TERMINATION or page.pidfd is None or page.is_gone():
        raise NotPermitted(f"rank {who.rank} does not hold SIGTERM, or is gone")
    was_told = bool(words[Word.TERMINATION_NS])
    if who.attempt not in failed and not is_over(plan, who.attempt, was_told):
        raise NotPermitted(f"attempt {who.attempt} is not over")
    proof = "it held SIGTERM, and its attempt is over"
    return Permit(Licence.OWN_RANK, Handle(page.pidfd, END_SIGNAL), proof)


def is_over(plan: Plan | None, attempt: int, was_told: bool) -> bool:
    """Whether ranks of this attempt have nothing more to do.

    Of a job that is stopped they may leave by themselves, at the end of their step, unless they
    were told to go before.
    """
    if plan is None or plan.attempt < attempt:
        return False
    if plan.attempt > attempt or plan.state == "ended":
        return True
    return plan.state == "stopped" and was_told


def _ended_badly(page: RankPage, words: tuple[int, ...], history: RankHistory | None) -> bool:
    """torchrun tears the node down when one of its ranks has failed, and goes by exit codes.

    Where the code can't be known the page must do: it misses `os._exit`, past all that writes it.
    """
    if not page.is_gone():
        return False
    if history is not None and history.look.identity == page.identity:
        if history.gone_since_s is None:
            return False  # it went since the last look; the next one may know its code
        if history.exit_code is not None:
            return history.exit_code != 0
    return words[Word.ENDING] != Ending.FINISHED
