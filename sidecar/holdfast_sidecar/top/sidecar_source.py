"""A job's view from its sidecars: one of this machine, or the leader that it names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.top.access import Access
from holdfast_sidecar.top.asking import Asked, Refused, ask
from holdfast_sidecar.top.sources import Away

LEFT_ALONE = 30
"""For so many views a leader is not tried again that could not be reached: where its port is closed
to us, each trial may take the whole time that an answer may."""


@dataclass
class SidecarSource:
    """Asks whoever answered last; where that is over, everybody who can be found now.

    A sidecar that was restarted listens on another port, so addresses are looked up again.
    """

    job: str
    """Whose sidecars; empty: of whichever job they are that are found."""
    find: Callable[[], Sequence[str]]
    """Addresses of sidecars to ask, the best one first. Away where nobody can be found."""
    access: Access = field(default_factory=Access)
    asked: Asked = ask
    here: Callable[[], Collection[str]] = tuple
    """Addresses that this machine itself knows its own by. Another machine's loopback address, as
    Redis has it, is anybody's on this one."""
    _near: str = ""
    """Who answered last."""
    _leader: str = ""
    """Who leads and answered last; it knows more than the others."""
    _missed: str = ""
    """Who leads and could not be reached..."""
    _views_until_tried: int = 0
    """...and when it is tried again."""

    @property
    def name(self) -> str:
        """Who is asked."""
        return f"a sidecar of job {self.job}" if self.job else "a sidecar"

    def read(self) -> LiveView:
        """The leader's view, else that of any other of the job's sidecars."""
        view = self._told_if_it_can(self._leader) if self._leader else None
        if view is not None and view.is_leader:
            return view
        self._leader = ""
        return self._leaders(self._nearest())

    def _nearest(self) -> LiveView:
        trouble = Away("no sidecar of the job is known")
        for address in self._addresses():
            try:
                view = self._told(address)
            except Away as error:
                trouble = error
                continue
            self._near = address
            return view
        self._near = ""
        raise trouble

    def _addresses(self) -> Iterator[str]:
        if self._near:
            yield self._near
        yield from (address for address in self.find() if address != self._near)

    def _leaders(self, near: LiveView) -> LiveView:
        """What the leader says, if it can be reached from here. Behind a loopback address of its
        machine somebody else may listen on ours: so it has to say who it is."""
        address = near.leader_address
        if near.is_leader or not address or not self._is_worth_a_trial(address):
            return near
        view = self._told_if_it_can(address)
        if view is None or not view.is_leader or not _is_leader_of(near, view):
            self._missed, self._views_until_tried = address, LEFT_ALONE
            return near
        self._leader = address
        return view

    def _is_worth_a_trial(self, address: str) -> bool:
        """Not what was missed a moment ago; and a token shown under TLS is not shown without."""
        self._views_until_tried -= 1
        if self._near.startswith("https://") and not address.startswith("https://"):
            return False
        return address != self._missed or self._views_until_tried < 0

    def _told_if_it_can(self, address: str) -> LiveView | None:
        try:
            return self._told(address)
        except (Away, BadInput):
            return None

    def _told(self, address: str) -> LiveView:
        view = self.asked(address, self._access_to(address))
        if self.job and view.run != self.job:
            raise Refused(f"{address} is a sidecar of job {view.run!r}, not of {self.job!r}")
        return view

    def _access_to(self, address: str) -> Access:
        if not self.access.token_file or address.startswith("https://"):
            return self.access
        return replace(self.access, only_secured=address not in self.here())


def _is_leader_of(near: LiveView, view: LiveView) -> bool:
    return (view.run, view.node) == (near.run, near.leader_node)
