from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast_sidecar.ranks.flight_recorder import (
    Members,
    NoAnswerError,
    UnknownHandlerError,
    ask,
    parse_members,
    parse_response,
    parse_trace,
    read_members,
)
from holdfast_sidecar.records.collectives import RankTrace

MEMBERS = {"0": Members("default_pg", (0, 1, 2)), "1": Members("undefined", (2, 0))}


def entry(
    record: int, number: int, what: str = "all_reduce", retired: bool = True, **changes: Any
) -> dict[str, Any]:
    """As torch 2.13 writes it for gloo, as far as it is read."""
    return {
        "record_id": record,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "is_p2p": False,
        "profiling_name": f"gloo:{what}",
        "input_sizes": [[3, 4]],
        "output_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "retired": retired,
    } | changes


def dump(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"version": "2.10", "entries": entries}).encode()


def parsed(*entries: dict[str, Any]) -> RankTrace:
    return parse_trace(0, [dump(*entries)], MEMBERS)


def test_what_is_not_retired_is_pending_and_what_came_before_is_complete() -> None:
    trace = parsed(entry(0, 1), entry(1, 2), entry(2, 3, retired=False), entry(3, 4, "barrier"))
    (standing,) = trace.standings
    assert (standing.entered, standing.completed, standing.is_waiting) == (4, 2, True)
    assert [str(call) for call in standing.pending] == ["all_reduce of Float x 12"]
    assert trace.answered
    assert trace.is_whole
    assert trace.groups == {"0": 3, "1": 2}


def test_without_anything_pending_a_rank_waits_for_nothing() -> None:
    (standing,) = parsed(entry(0, 1), entry(1, 2)).standings
    assert (standing.entered, standing.completed, standing.is_waiting) == (2, 2, False)


def test_nccl_says_completed_instead_of_retired() -> None:
    done = entry(0, 1, retired=False, state="completed", profiling_name="nccl:all_reduce")
    (standing,) = parsed(done).standings
    assert (standing.backend, standing.is_waiting) == ("nccl", False)


def test_a_ring_that_has_lapped_does_not_speak_for_groups_it_does_not_mention() -> None:
    assert parsed(entry(7, 8)).entered("1", "gloo") is None
    assert parsed(entry(0, 1)).entered("1", "gloo") == 0
    assert parsed(entry(7, 8)).entered("0", "gloo") == 8


def test_entries_of_a_group_that_ended_do_not_count_under_its_name() -> None:
    """destroy_process_group and a new one: torch gives the names again."""
    (standing,) = parsed(entry(0, 1), entry(1, 2), entry(2, 1, pg_id=1)).standings
    assert standing.entered == 1


def test_a_group_that_the_rank_left_keeps_nobody_waiting() -> None:
    left = entry(0, 1, retired=False, process_group=["9", "undefined"], pg_id=3)
    assert parsed(left, entry(1, 1)).standings == parsed(entry(1, 1)).standings
    assert len(parse_trace(0, [dump(left)], None).standings) == 1


def test_of_very_many_groups_those_used_last_are_told() -> None:
    names = [str(number) for number in range(40)]
    members = {name: Members("", (0, 1)) for name in names}
    entries = [
        entry(record, 1, process_group=[name, ""], pg_id=record)
        for record, name in enumerate(names)
    ]
    trace = parse_trace(0, [dump(*entries)], members)
    assert [standing.group for standing in trace.standings] == names[:23:-1]
    assert not trace.is_whole


def test_only_what_all_ranks_must_agree_on_makes_two_calls_differ() -> None:
    def history(what: str, size: int) -> str:
        return parsed(entry(0, 1, what, input_sizes=[[size]])).standings[0].history

    assert history("all_reduce", 3) != history("all_reduce", 4)
    assert history("all_gather", 3) == history("all_gather", 4)


def test_messages_name_the_global_ranks_they_are_exchanged_with() -> None:
    group: dict[str, Any] = {"process_group": ["1", "undefined"], "pg_id": 1, "is_p2p": True}
    group["retired"] = False
    sending = entry(0, 0, profiling_name="nccl:send 1->0", **group)
    assert parsed(sending).messages_to == [2]
    done = entry(0, 0, profiling_name="nccl:recv 1<-0", **(group | {"retired": True}))
    assert parsed(done).messages_to == []


def test_a_call_out_of_turn_is_told_from_the_pattern_of_all_groups_together() -> None:
    def step(first: int, number: int) -> list[dict[str, Any]]:
        own: dict[str, Any] = {"process_group": ["1", "undefined"], "pg_id": 1}
        return [entry(first, number), entry(first + 1, number, **own)]

    past = [*step(0, 1), *step(2, 2), *step(4, 3)]
    usual = entry(6, 4, retired=False)
    odd = entry(6, 4, retired=False, process_group=["1", "undefined"], pg_id=1)
    assert parsed(*past, usual).out_of_turn == -1
    assert parsed(*past, odd).out_of_turn == 0
    assert parsed(*past[:4], odd, usual).out_of_turn == 0
    assert parsed(usual).out_of_turn == parsed(*past).out_of_turn == -1


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"entries": [{}]}', b'{"entries": [1]}'])
def test_what_is_no_dump_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_trace(0, [text], {})


def test_members_are_read_in_the_order_of_their_group(tmp_path: Path) -> None:
    text = b'{"1":{"title":"mesh_dp","ranks":[4,0]}}'
    assert parse_members(text) == {"1": Members("mesh_dp", (4, 0))}
    assert parse_members(b"[1]") is parse_members(b"nonsense") is None
    assert read_members(tmp_path / "none") is None


def test_only_a_whole_and_successful_response_counts() -> None:
    assert parse_response(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") == b"{}"
    for response in (
        b"HTTP/1.1 404 Not Found\r\n\r\nHandler not found",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK",
        b"",
    ):
        with pytest.raises(NoAnswerError):
            parse_response(response)


class Server:
    """Answers one question on a Unix socket, or takes it and says nothing."""

    def __init__(self, path: Path, answer: bytes | None) -> None:
        self.heard = b""
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        self.heard = connection.recv(4096)
        if self._answer is not None:
            connection.sendall(self._answer)
            connection.close()
        else:
            connection.recv(1)

    def close(self) -> None:
        self._thread.join(5)
        self._socket.close()


def test_a_rank_is_asked_over_its_socket(tmp_path: Path) -> None:
    server = Server(tmp_path / "a.socket", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    assert ask(tmp_path / "a.socket", 5.0, "fr_trace_json") == b"{}"
    server.close()
    assert server.heard.startswith(b"POST /handler/fr_trace_json HTTP/1.1\r\n")


def test_a_path_too_long_for_a_socket_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    short = tmp_path / "short"
    short.symlink_to(deep)
    server = Server(short / "a.socket", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    assert ask(deep / "a.socket", 5.0) == b"{}"
    server.close()


def test_one_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    server = Server(tmp_path / "a.socket", None)
    with pytest.raises(OSError, match=r"timed out|in time"):
        ask(tmp_path / "a.socket", 0.05)
    server.close()
    with pytest.raises(FileNotFoundError):
        ask(tmp_path / "nobody.socket", 0.05)


def test_a_handler_that_this_torch_lacks_is_told_from_one_that_fails() -> None:
    with pytest.raises(UnknownHandlerError):
        parse_response(b"HTTP/1.1 404 Not Found\r\n\r\nHandler not found")
    with pytest.raises(NoAnswerError) as refused:
        parse_response(b"HTTP/1.1 500 Internal Server Error\r\n\r\n")
    assert not isinstance(refused.value, UnknownHandlerError)
