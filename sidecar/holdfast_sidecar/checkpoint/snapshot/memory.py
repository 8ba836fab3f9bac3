"""Where the memory of slots comes from: held by a process of its own, or files with names."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast.contract.snapshot_file import MEMORY_NAME

log = logging.getLogger(__name__)

ANSWER_S = 10.0
"""The holder renames a link and lists two directories; this is for a machine that swaps."""

MESSAGE_BYTES = 4096


class SlotMemory(Protocol):
    """Makes slots. What is made lasts as long as its name, or somebody's use of it."""

    @property
    def has_names(self) -> bool:
        """Whether slots take room in the file system for shared memory."""

    def make(self, path: Path, size: int) -> contextlib.AbstractContextManager[int]:
        """A descriptor of new memory of this size, every byte really there: sparse memory would
        end whoever maps it (SIGBUS) once there is none. It gets its name when the block ends
        without an error. Take no lock by this descriptor. Raises OSError, with nothing left."""

    def give_back(self) -> None:
        """Let the kernel have at once what has lost its name."""


class NamedFiles:
    """Files in the file system for shared memory: they stay when everything is killed."""

    has_names = True

    @contextlib.contextmanager
    def make(self, path: Path, size: int) -> Iterator[int]:
        """As SlotMemory says."""
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            yield descriptor
            temporary.rename(path)
        except BaseException:
            unlink(owned_file(temporary), missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def give_back(self) -> None:
        """It has it."""


class HeldMemory:
    """Memory without a name, handed to the holder; `link` is this end of its socket.

    Where the holder can't be reached, or what it holds can't be opened (another PID namespace,
    /proc closed), files with names take its place for good.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._link.settimeout(ANSWER_S)
        self._lock = threading.Lock()
        self._instead: NamedFiles | None = None

    @property
    def has_names(self) -> bool:
        """Whether files had to take its place."""
        return self._instead is not None

    @contextlib.contextmanager
    def make(self, path: Path, size: int) -> Iterator[int]:
        """As SlotMemory says. What has lost its name is given back first."""
        self._try_holder()
        if self._instead is not None:
            with self._instead.make(path, size) as descriptor:
                yield descriptor
            return
        descriptor = os.memfd_create(MEMORY_NAME, os.MFD_CLOEXEC)
        try:
            os.fchmod(descriptor, 0o600)
            os.posix_fallocate(descriptor, 0, size)
            yield descriptor
            self._hand_over(path, descriptor)
        finally:
            os.close(descriptor)

    def give_back(self) -> None:
        """Whoever holds it looks by itself, too, every few seconds."""
        if self._instead is None:
            with contextlib.suppress(OSError):
                self._ask({})

    def _try_holder(self) -> None:
        """It is there, has given back what it could, and what it holds can be opened from here."""
        if self._instead is not None:
            return
        try:
            holder = self._ask({})["pid"]
            Path(f"/proc/{holder}/fd/0").readlink()
        except OSError as error:
            self._give_up(str(error))

    def _hand_over(self, path: Path, descriptor: int) -> None:
        answer = self._ask({"name": f"{path.parent.name}/{path.name}"}, descriptor)
        if answer["problem"]:
            raise OSError(answer["problem"])

    def _ask(self, request: dict[str, str], *descriptors: int) -> dict[str, Any]:
        """What the holder answers. Raises OSError where it doesn't."""
        token = secrets.token_hex(8)
        message = json.dumps({**request, "token": token}).encode()
        with self._lock:
            socket.send_fds(self._link, [message], descriptors)
            while data := self._link.recv(MESSAGE_BYTES):
                answer: dict[str, Any] = json.loads(data)
                if answer["token"] == token:  # else for a sidecar that died while it asked
                    return answer
        raise ConnectionResetError("the holder of slots has ended")

    def _give_up(self, why: str) -> None:
        if self._instead is None:
            log.warning("slots are files with names from now on, as their holder fails: %s", why)
            self._instead = NamedFiles()


def inherited_memory(descriptor: int | None) -> SlotMemory:
    """By the socket that the launcher handed on; files with names where there is none."""
    if descriptor is None:
        return NamedFiles()
    os.set_inheritable(descriptor, False)
    return HeldMemory(socket.socket(fileno=descriptor))
