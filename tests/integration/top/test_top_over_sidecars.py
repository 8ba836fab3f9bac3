"""`holdfast top` asks real sidecars: through any of them the leader, whatever becomes of Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.integration.sidecar.node import Node, wait_for
from tests.servers import Server, required
from tests.unit.export.asking import make_certificate

from holdfast_sidecar.cli.main import cli


@pytest.fixture
def nodes(tmp_path: Path, server: Server) -> Iterator[list[Node]]:
    made = [Node(tmp_path / name, server, name=name) for name in "ab"]
    yield made
    for node in made:
        node.close()


def top(*arguments: str, state: Path) -> Result:
    words = ["top", *arguments, "--set", f"paths.state_dir={state}"]
    return CliRunner().invoke(cli, words, prog_name="holdfast")


def view(*arguments: str, state: Path) -> dict[str, Any]:
    result = top("--json", *arguments, state=state)
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def state_of(node: Node) -> Path:
    return Path(node.paths.state_dir)


def leading(nodes: list[Node]) -> str:
    """Who leads, once every sidecar answers and knows it."""

    def known() -> str:
        results = [top("--json", state=state_of(node)) for node in nodes]
        if any(result.exit_code for result in results):
            return ""
        leaders = {json.loads(result.stdout)["leader_node"] for result in results}
        return leaders.pop() if len(leaders) == 1 else ""

    name: str = wait_for(known)
    return name


def test_the_leader_is_found_through_any_sidecar_and_while_redis_is_away(
    nodes: list[Node], server: Server, tmp_path: Path
) -> None:
    for node in nodes:
        node.sidecar()
    leader = leading(nodes)
    (follower,) = [node for node in nodes if node.name != leader]
    wait_for(lambda: view(state=state_of(follower))["node"] == leader)
    assert view(state=state_of(follower))["is_leader"]
    # A machine without a sidecar of the job asks those that Redis knows.
    redis = ("--redis", server.settings.url)
    assert view("--job", "job", *redis, state=tmp_path / "none")["node"] == leader

    server.pause()
    lines = wait_for(
        lambda: (
            "Redis has been away" in (told := top("--once", state=state_of(follower)).output)
            and told
        )
    ).splitlines()
    assert lines[0].startswith("job  ")
    assert all(len(line) <= 100 for line in lines)
    server.resume()


def test_when_every_sidecar_is_gone_redis_tells_what_it_holds(
    nodes: list[Node], server: Server, tmp_path: Path
) -> None:
    (node, _) = nodes
    node.sidecar()
    launcher = node.launcher()
    node.agent(launcher, "joining")
    wait_for(node.plan)
    node.children[0].kill()
    node.children[0].wait()
    redis = ("--redis", server.settings.url)
    told = view("--job", "job", *redis, state=tmp_path / "none")
    assert (told["node"], told["run"]) == ("", "job")
    assert [one["node"] for one in told["nodes"]] == ["a"]
    result = top("--once", "--job", "job", *redis, state=tmp_path / "none")
    assert "told by Redis alone" in result.output

    unknown = top("--once", "--job", "nonsense", *redis, state=tmp_path / "none")
    assert unknown.exit_code == 2
    assert unknown.output.count("\n") == 1
    assert "knows no job 'nonsense'" in unknown.output


def test_a_sidecar_that_wants_tls_and_a_token_gets_both(nodes: list[Node], tmp_path: Path) -> None:
    required("openssl")
    certificate, key = make_certificate(tmp_path)
    token, other = tmp_path / "token", tmp_path / "other"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    other.write_text("fedcba9876543210fedcba9876543210\n")
    settings = [
        *("--set", f"sidecar.token_file={token}"),
        *("--set", f"sidecar.tls_cert_file={certificate}"),
        *("--set", f"sidecar.tls_key_file={key}"),
    ]
    (node, _) = nodes
    node.sidecar(*settings)
    state = state_of(node)
    wait_for(lambda: not top("--json", *settings, state=state).exit_code)
    assert view(*settings, state=state)["run"] == "job"
    refused = top("--json", *settings, "--token-file", str(other), state=state)
    assert refused.exit_code == 2
    assert "wants a token, or another one" in refused.output
    unknown = top("--json", "--token-file", str(token), state=state)
    assert unknown.exit_code == 2
    assert "a certificate that is not believed" in unknown.output
    for result in (refused, unknown):
        assert result.output.count("\n") == 1
        assert "0123456789abcdef" not in result.output
