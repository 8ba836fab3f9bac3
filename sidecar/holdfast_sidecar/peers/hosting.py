"""This node's serving half: the server, who may call, what its ranks are told of confirmations."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.snapshot_file import OWN_DIRECTORY
from holdfast_sidecar.config.addresses import parse_listen
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.peers.channel import Channel
from holdfast_sidecar.peers.conversation import Conversation, Shelves
from holdfast_sidecar.peers.handshake import Credentials
from holdfast_sidecar.peers.rank_words import NO_MORE, Existing, RankWords
from holdfast_sidecar.peers.seal_watch import SealWatch
from holdfast_sidecar.peers.server import PeerServer
from holdfast_sidecar.peers.tally import Tally

log = logging.getLogger(__name__)


class Hosting:
    """Serves one attempt at a time. The loop calls; the server's threads call back."""

    def __init__(self, shm: Path, listen: str, tally: Tally) -> None:
        self._shm = shm
        self._listen = listen
        self._tally = tally
        self._watch = SealWatch(shm / OWN_DIRECTORY)
        self._server: PeerServer | None = None
        self._words: RankWords | None = None
        self._safe: dict[int, int] = {}
        self._released: set[int] = set()
        self._lock = threading.Lock()
        self.obstacle = ""
        """Why nothing is served although it should be."""

    @property
    def refused(self) -> int:
        """Callers that were refused."""
        return 0 if self._server is None else self._server.counts.refused

    def open(self) -> None:
        """Listen, unless that was done already or can't be."""
        if self._server is not None or self.obstacle:
            return
        try:
            server = PeerServer(parse_listen(self._listen), self._converse)
            server.start()
        except BlockingIOError:
            return  # the next tick tries again
        except (OSError, BadInput) as error:
            self.obstacle = f"can't listen on {self._listen}: {error}"
            log.warning("no copies on other nodes: %s", self.obstacle)
            return
        self._server = server

    def address(self, node_address: str) -> str:
        """Where other nodes call; empty: nowhere."""
        return "" if self._server is None else self._server.address(node_address)

    def admit(self, own: Credentials | None) -> None:
        """Serve callers of this attempt from now on; None: nobody."""
        if self._server is not None:
            self._server.admit(own)

    def speak_to(self, attempt: int) -> None:
        """The ranks that words are for are those of this attempt; -1: there are none."""
        with self._lock:
            if self._words is not None and self._words.attempt != attempt:
                self._words.close()
                self._words = None
            if self._words is None and attempt >= 0:
                self._words = RankWords(self._shm, attempt)
                self._safe, self._released = {}, set()

    def safe(self) -> Mapping[int, int]:
        """Rank -> newest step that another node confirmed in this attempt."""
        with self._lock:
            return dict(self._safe)

    def release(self, rank: int) -> None:
        """Tell this rank not to wait for confirmations until further notice."""
        with self._lock:
            self._released.add(rank)
            self._tell(rank, NO_MORE, is_safe=False)

    def let_wait(self, rank: int) -> None:
        """Tell this rank that confirmations come again, if it was told the contrary."""
        with self._lock:
            if rank in self._released:
                self._released.discard(rank)
                self._tell(rank, self._safe.get(rank, 0), is_safe=True)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
        self._watch.close()
        self.speak_to(-1)

    def _converse(self, channel: Channel, is_over: Callable[[], bool]) -> None:
        shelves = Shelves(self._shm, self._watch, self._existing, self._confirm, self._tally.sent)
        Conversation(channel, shelves, is_over).hold()

    def _existing(self, attempt: int, rank: int) -> Existing:
        with self._lock:
            words = self._words
        if words is None or words.attempt != attempt:
            return Existing()
        return words.existing(rank)

    def _confirm(self, attempt: int, rank: int, step: int) -> None:
        with self._lock:
            if self._words is None or self._words.attempt != attempt:
                return
            self._safe[rank] = max(step, self._safe.get(rank, -1))
            if rank not in self._released:
                self._tell(rank, step, is_safe=True)

    def _tell(self, rank: int, step: int, *, is_safe: bool) -> None:
        if self._words is not None:
            self._words.tell(rank, step, is_safe=is_safe)
