"""Lines as a kernel wrote them, on x86-64."""

from __future__ import annotations

import math
import struct

import pytest

from holdfast_sidecar.linux.syscalls import (
    SystemCall,
    Where,
    ends_by_itself_s,
    is_mere_sleep,
    is_shared_lock,
    parse_call,
    parse_code,
    parse_connections,
    parse_end_s,
    parse_epoll,
    parse_pollfds,
    parse_unix_connections,
    place_of,
    returns_into,
    timer_address,
    where_of,
)

SLEEPING = "230 0x0 0x0 0x7fff18a6df90 0x7fff18a6dfd0 0x0 0x0 0x7fff18a6df78 0x7f5d51087503\n"
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7001 1
   1: 0100007F:9D4A 0100007F:18EB 01 00000000:00000000 00:00000000 00000000     0        0 7002 1
   2: 0200000A:9D4A 0300000A:01BB 02 00000000:00000000 01:00000063 00000000     0        0 7003 2
"""


def call(number: int, *arguments: int) -> SystemCall:
    return SystemCall(number, (*arguments, *[0] * (6 - len(arguments))), 1, 2)


def test_a_call_is_told_from_running_and_from_a_page_fault() -> None:
    sleeping = parse_call(SLEEPING)
    assert sleeping is not None
    assert place_of(sleeping) == (230, 0x7FFF18A6DF78, 0x7F5D51087503)
    assert timer_address(sleeping) == 0x7FFF18A6DF90
    assert parse_call("running\n") is None
    fault = parse_call("-1 0x7fff18a6df78 0x7f5d51087503\n")
    assert fault is not None
    assert where_of(fault.number, frozenset(), frozenset()) is Where.STORAGE


def timespec(seconds: float) -> bytes:
    return struct.pack("<qq", int(seconds), int(seconds % 1 * 1e9))


@pytest.mark.parametrize(
    ("made", "given_s", "left_s"),
    [
        (call(35, 0x10), 5.0, 5.0),
        (call(230, 1, 0, 0x10), 5.0, 5.0),
        (call(230, 1, 1, 0x10), 1030.0, 30.0),
        (call(230, 0, 1, 0x10), 9030.0, 30.0),
        (call(202, 0x20, 128, 2, 0x10), 5.0, 5.0),
        (call(202, 0x20, 137, 0, 0x10), 1005.5, 5.5),
        (call(202, 0x20, 137 | 256, 0, 0x10), 9005.0, 5.0),
        (call(230, 1, 1, 0x10), 900.0, 0.0),
        (call(270, 0, 0, 0, 0, 0x10), 5.5, 5.5),
        (call(128, 0x20, 0, 0x10), 5.0, 5.0),
        (call(271, 0x20, 1, 0x10), 5.0, 5.0),
        (call(441, 3, 0x20, 8, 0x10), 5.0, 5.0),
    ],
    ids=[
        "nanosleep",
        "a relative sleep",
        "a sleep until a time",
        "a sleep until a date",
        "a lock",
        "a lock until a time",
        "a lock until a date",
        "a time that has passed",
        "a sleep without descriptors",
        "a signal for some time",
        "an array of descriptors for some time",
        "an event loop for some time",
    ],
)
def test_a_timer_says_when_a_wait_ends(made: SystemCall, given_s: float, left_s: float) -> None:
    assert timer_address(made) == 0x10
    assert parse_end_s(made, timespec(given_s), 1000.0, 9000.0) == pytest.approx(left_s)


def test_select_counts_in_microseconds_and_without_descriptors_only_sleeps() -> None:
    sleep, wait = call(23, 0, 0, 0, 0, 0x10), call(23, 5, 0x20, 0, 0, 0)
    timeval = struct.pack("<qq", 30, 500_000)
    assert parse_end_s(sleep, timeval, 1000.0, 9000.0) == 30.5
    assert (is_mere_sleep(sleep), is_mere_sleep(wait)) == (True, False)
    assert timer_address(wait) == 0


@pytest.mark.parametrize(
    ("made", "ends_s"),
    [
        (call(7, 0x20, 1, 5000), 5.0),
        (call(7, 0x20, 1, 0xFFFFFFFF), math.inf),
        (call(232, 3, 0x20, 8, 250), 0.25),
        (call(281, 3, 0x20, 8, 0xFFFFFFFFFFFFFFFF), math.inf),
        (call(0, 3), math.inf),
    ],
    ids=["poll", "poll without an end", "epoll_wait", "epoll_pwait without an end", "read"],
)
def test_milliseconds_among_the_arguments_say_when_a_wait_ends(
    made: SystemCall, ends_s: float
) -> None:
    assert timer_address(made) == 0
    assert ends_by_itself_s(made) == ends_s


def test_a_lock_may_be_shared_with_another_process() -> None:
    assert not is_shared_lock(call(202, 0x20, 0x189))
    assert not is_shared_lock(call(202, 0x20, 0x80))
    assert is_shared_lock(call(202, 0x20, 0x109))
    assert not is_shared_lock(call(230, 0, 0))


def test_a_timer_that_cannot_be_read_may_end_at_any_time() -> None:
    assert parse_end_s(call(35, 0x10), b"", 1000.0, 9000.0) == 0.0
    assert timer_address(call(202, 0x20, 128, 2, 0)) == 0


@pytest.mark.parametrize(
    ("number", "target", "where"),
    [
        (202, "", Where.LOCK),
        (230, "", Where.SLEEP),
        (34, "", Where.SIGNAL),
        (61, "", Where.CHILD),
        (257, "", Where.STORAGE),
        (0, "/data/part-7", Where.STORAGE),
        (0, "fifo:/data/part-7", Where.QUEUE),
        (0, "pipe:[7001]", Where.QUEUE),
        (7, "socket:[7001]", Where.QUEUE),
        (45, "socket:[7002]", Where.NETWORK),
        (42, "socket:[7003]", Where.NETWORK),
        (232, "socket:[7002]", Where.NETWORK),
        (7, "/dev/nvidia0", Where.DEVICE),
        (0, "", Where.OTHER),
        (16, "", Where.OTHER),
        (9999, "", Where.OTHER),
    ],
)
def test_a_call_and_its_descriptor_say_what_is_waited_for(
    number: int, target: str, where: Where
) -> None:
    connected = parse_connections(TCP)
    assert connected == {"socket:[7002]", "socket:[7003]"}
    assert where_of(number, frozenset({target} - {""}), connected) is where


def test_one_connection_among_many_descriptors_is_what_counts() -> None:
    targets = frozenset({"pipe:[1]", "socket:[7002]"})
    assert where_of(7, targets, parse_connections(TCP)) is Where.NETWORK


def test_descriptors_of_poll_and_epoll_are_read() -> None:
    array = struct.pack("<ihhihhihh", 4, 1, 0, -1, 1, 0, 9, 1, 0)
    assert parse_pollfds(array) == [4, 9]
    assert parse_pollfds(array[:11]) == [4]
    watched = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data: 5\ntfd:  x\n"
    assert parse_epoll(watched) == [5]


def test_of_unix_sockets_only_those_count_that_have_another_end() -> None:
    table = (
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000: 00000002 00000000 00010000 0001 01 7001 /run/dashboard\n"
        "0000: 00000003 00000000 00000000 0001 03 7002\n"
        "0000: 00000003 00000000 00000000 0001 03 7003 /run/dashboard\n"
    )
    assert parse_unix_connections(table) == {"socket:[7002]", "socket:[7003]"}


def test_a_stack_tells_of_the_library_that_a_thread_is_in() -> None:
    maps = (
        "1000-2000 r--p 0000 00:1f 99 /usr/lib/libcuda.so.580.95\n"
        "2000-3000 r-xp 1000 00:1f 99 /usr/lib/libcuda.so.580.95\n"
        "3000-4000 r-xp 0000 00:1f 98 /usr/lib/libc.so.6\n"
        "7000-8000 rw-p 0000 00:00 0\n"
    )
    code = parse_code(maps, ("libcuda.so",))
    assert code == [(0x2000, 0x3000)]
    for address, is_inside in ((0x1FFF, False), (0x2000, True), (0x2FFF, True), (0x3000, False)):
        assert returns_into(struct.pack("<3Q", 7, address, 0) + b"cut", code) is is_inside


def test_only_whole_words_of_a_stack_are_addresses() -> None:
    code = [(0x7F2C_0000_0000, 0x7F2C_0380_0000)]
    for address, is_inside in (
        (0x7F2C_0000_0000, True),
        (0x7F2C_037F_FFFF, True),
        (0x7F2C_0380_0000, False),
        (0x7F2B_FFFF_FFFF, False),
        (0x0001_7F2C_0000_0000, False),
    ):
        words = struct.pack("<4Q", 0x7F2C_0390_0000, 0, address, 1)
        assert returns_into(words, code) is is_inside
        assert not returns_into(words[1:] + bytes(1), code)
    assert not returns_into(b"", code)
