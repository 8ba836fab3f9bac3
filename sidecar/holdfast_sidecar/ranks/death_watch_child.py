"""Waits for the mutexes in rank pages and says, one line on stdout each, which was let go.

Disposable, and the standard library alone: a wait in C ends by itself or with its process, and
whatever a page holds can't harm the sidecar in here. Lines on stdin: `watch KEY INODE OFFSET PATH`
and `forget KEY`; it leaves when there are no more. Lines on stdout: `KEY let_go` or `KEY unfit`.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import threading
import time

WAIT_S = 5.0
"""Longest single wait: how long after `forget` a thread may stay."""

LET_GO = "let_go"
UNFIT = "unfit"
"""Of what can't be waited for: another page by now, or no mutex of this library."""

_FREE = (0, errno.EOWNERDEAD, errno.ENOTRECOVERABLE)
"""Answers that a living holder rules out: it never lets go."""


class Timespec(ctypes.Structure):
    """struct timespec, where long has the size of time_t."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Mutex:
    """A robust mutex of some other process, in the file in which it lies."""

    def __init__(self, libc: ctypes.CDLL, memory: mmap.mmap, offset: int) -> None:
        self._libc = libc
        self._held = ctypes.c_char.from_buffer(memory, offset)
        self._mutex = ctypes.byref(self._held)

    def wait(self, timeout_s: float) -> int:
        """0, or what pthread_mutex_timedlock says; whoever gets the mutex leaves it in order."""
        until = time.time() + timeout_s
        whole, rest = divmod(until, 1.0)
        limit = Timespec(int(whole), int(rest * 1e9))
        answer = int(self._libc.pthread_mutex_timedlock(self._mutex, ctypes.byref(limit)))
        if answer == errno.EOWNERDEAD:
            self._libc.pthread_mutex_consistent(self._mutex)
        if answer in (0, errno.EOWNERDEAD):
            self._libc.pthread_mutex_unlock(self._mutex)
        return answer


class Watches:
    """One thread for each page; `keys` are those that are still asked for."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self.keys: set[str] = set()

    def begin(self, key: str, inode: int, offset: int, path: str) -> None:
        """Wait for the mutex in this file from now on."""
        self.keys.add(key)
        watch = (key, inode, offset, path)
        threading.Thread(target=self._watch, args=watch, daemon=True).start()

    def _watch(self, key: str, inode: int, offset: int, path: str) -> None:
        if not is_glibc():
            say(key, UNFIT)
            return
        try:
            memory = open_memory(path, inode)
        except OSError:
            say(key, UNFIT)
            return
        mutex = Mutex(self._libc, memory, offset)
        answer = errno.ETIMEDOUT
        while answer in (errno.ETIMEDOUT, errno.EINTR) and key in self.keys:
            answer = mutex.wait(WAIT_S)
        if key in self.keys:
            say(key, LET_GO if answer in _FREE else UNFIT)


def is_glibc() -> bool:
    """Whether this side understands the mutex, too: ranks hold one of glibc's."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):  # musl does not know the name
        return False


def open_memory(path: str, inode: int) -> mmap.mmap:
    """The page's memory; OSError when another file has its name by now."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if facts.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "another user's page", path)
        if facts.st_ino != inode:
            raise FileNotFoundError(errno.ENOENT, "another page by now", path)
        return mmap.mmap(descriptor, 0)
    except ValueError as error:  # an empty file
        raise OSError(errno.EINVAL, str(error), path) from None
    finally:
        os.close(descriptor)


def say(key: str, what: str) -> None:
    """One whole line by one write, so that threads need no lock."""
    os.write(1, f"{key} {what}\n".encode())


def main() -> None:
    """Obey until stdin ends."""
    watches = Watches()
    for line in sys.stdin:
        order, _, rest = line.rstrip("\n").partition(" ")
        if order == "watch":
            key, inode, offset, path = rest.split(" ", 3)
            watches.begin(key, int(inode), int(offset), path)
        elif order == "forget":
            watches.keys.discard(rest)
    os._exit(0)  # threads may sit in waits


if __name__ == "__main__":
    main()
