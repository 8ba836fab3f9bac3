"""What happened to one GPU or switch within a day, looked up once per judgement; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast_sidecar.xids.history import History, Word, newest_word
from holdfast_sidecar.xids.occurrence import Occurrence


@dataclass(frozen=True)
class Case:
    """One GPU's, or one switch's."""

    pci: str
    ones: tuple[Occurrence, ...]
    """In the order of their times."""
    boot: str
    """This boot."""
    newest_episode: int
    word: Word | None
    """What the driver last said the GPU needs, in this boot."""
    cleared_s: float
    """When it last took that back."""
    reloaded_s: float
    """When its driver was last seen to have been loaded anew."""
    times: Mapping[str, int]
    """Name -> how often."""

    def is_cleared(self, one: Occurrence) -> bool:
        """Whether the driver has since taken back what the GPU needed."""
        return self.cleared_s > one.last_s

    def is_reset(self, one: Occurrence) -> bool:
        """Whether its driver was loaded anew since, which resets it."""
        return self.reloaded_s > one.last_s

    def is_current(self, one: Occurrence) -> bool:
        """Whether it may still be going on; what was judged of all else stands."""
        is_newest = one.boot == self.boot and one.episode == self.newest_episode
        return is_newest and not self.is_cleared(one)

    def word_of_episode(self, one: Occurrence) -> Word | None:
        """What the driver asked for while this lasted; None: nothing."""
        for other in self.ones:
            if other.episode == one.episode and other.recovery_action:
                return Word(other.recovery_action, other.last_s, other.first_s)
        return None


def cases_of(history: History, boot: str) -> Iterator[Case]:
    """One for each address that has trouble, in the order of the addresses."""
    by_pci: dict[str, list[Occurrence]] = defaultdict(list)
    for one in history.occurrences:
        by_pci[one.pci].append(one)
    for pci, ones in sorted(by_pci.items()):
        yield Case(
            pci=pci,
            ones=tuple(sorted(ones, key=lambda one: one.first_s)),
            boot=boot,
            newest_episode=max(one.episode for one in ones),
            word=newest_word(ones, boot),
            cleared_s=history.cleared.get(pci, float("-inf")),
            reloaded_s=history.reloaded.get(pci, float("-inf")),
            times=Counter(one.name for one in ones),
        )
