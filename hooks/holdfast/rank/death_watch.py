"""A mutex in the page, held by the rank's main thread for life, so that its death is known at once.

The kernel lets go of robust mutexes before it frees the memory of a dead process, and wakes who
waits for them; everything else that tells of an end comes after, a second later per ten GiB.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from typing import Protocol

from holdfast.contract.page import DEATH_OFFSET, DEATH_SIZE, Word

MADV_DONTFORK = 10
PTHREAD_PROCESS_SHARED = 1
PTHREAD_MUTEX_ROBUST = 1

_FAILED = ctypes.c_void_p(-1).value


class Words(Protocol):
    """The part of the recorder that is needed here."""

    def set_word(self, word: Word, value: int, /) -> None:
        """Store a word."""


def hold(descriptor: int, words: Words) -> bool:
    """Take the mutex of the page behind this descriptor; whether it is held from now on.

    Nothing is held outside the main thread, which lives longest, nor without glibc, whose mutexes
    are what the sidecar understands. The end of the process is then seen a little later.
    """
    if threading.current_thread() is not threading.main_thread() or not is_glibc():
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    mutex = _map(libc, descriptor) + DEATH_OFFSET
    _prepare(libc, mutex)
    # Never a wait: it is ours and new, and whatever is wrong with it must not stop the rank.
    if libc.pthread_mutex_trylock(ctypes.c_void_p(mutex)) != 0:
        return False
    words.set_word(Word.DEATH_WATCH, 1)
    return True


def is_glibc() -> bool:
    """Whether this process runs on the GNU C library."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):  # musl does not know the name
        return False


def _map(libc: ctypes.CDLL, descriptor: int) -> int:
    """A mapping that nobody ever unmaps: Python's own is gone before the process is, and the kernel
    can't let go of what is not mapped. Forked children do not get it: they can't touch the mutex,
    and do not keep the page's lock alive.
    """
    length = DEATH_OFFSET + DEATH_SIZE
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
        ctypes.c_long,
    )
    address = libc.mmap(
        None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0
    )
    if address in (None, _FAILED):
        raise OSError(ctypes.get_errno(), "the page can't be mapped for the death watch")
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.madvise(address, length, MADV_DONTFORK) != 0:
        error = ctypes.get_errno()
        libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        libc.munmap(address, length)
        raise OSError(error, "children can't be kept from the death watch")
    return int(address)


def _prepare(libc: ctypes.CDLL, mutex: int) -> None:
    """A new mutex of the default type: the other ones compare thread numbers, which differ between
    process namespaces."""
    attributes = ctypes.create_string_buffer(64)
    for error in (
        libc.pthread_mutexattr_init(attributes),
        libc.pthread_mutexattr_setpshared(attributes, PTHREAD_PROCESS_SHARED),
        libc.pthread_mutexattr_setrobust(attributes, PTHREAD_MUTEX_ROBUST),
        libc.pthread_mutex_init(ctypes.c_void_p(mutex), attributes),
    ):
        if error:
            raise OSError(error, "the mutex of the death watch can't be made")
