"""The user's commands for nodes that go and come: what they are given, and that none hangs us."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from holdfast_sidecar.actions import KEPT, NodeHooks, own_hooks, words_of
from holdfast_sidecar.config.settings import NodesSettings
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.records.plan import HookRun, Plan
from holdfast_sidecar.store.orders import Orders

DRAIN = "scontrol update nodename={node} state=drain reason={reason}"

NASTY = "xid 79; rm -rf / $(reboot) `x` \"'{node}' -- --force\nstate=resume\0"


def run(**given: object) -> HookRun:
    facts = {"part": "m", "node": "n1", "since_unix_s": 5.0, "event": "quarantine", "by": "a/i"}
    return HookRun(**(facts | given))  # type: ignore[arg-type]


def orders(*runs: HookRun) -> list[HookRun]:
    return own_hooks(Orders(plan=Plan(1, 1, "running", hooks=list(runs)), candidate="a/i"))


def follow(hooks: NodeHooks, given: list[HookRun], runner: ActionRunner) -> None:
    """Until nothing runs any more."""
    hooks.follow(given, runner, time.monotonic())
    end = time.monotonic() + 10.0
    while hooks._running and time.monotonic() < end:
        time.sleep(0.005)
        hooks.follow(given, runner, time.monotonic())


def python(code: str) -> str:
    return f"{sys.executable} -c '{code}' {{node}} {{reason}}"


def test_what_is_told_of_a_node_is_one_word_whatever_it_says() -> None:
    words = words_of(run(reason=NASTY), NodesSettings(on_quarantine=DRAIN))
    assert words[:4] == ["scontrol", "update", "nodename=n1", "state=drain"]
    assert len(words) == 5
    assert words[4].startswith("reason=xid 79; rm -rf / $(reboot)")
    assert "{node}" in words[4]
    assert "\n" not in words[4]
    assert "\0" not in words[4]


@pytest.mark.parametrize(
    ("command", "node", "says"),
    [
        ("", "n1", "no command"),
        ("kubectl cordon 'x", "n1", "No closing quotation"),
        ("kubectl cordon {node}", "--all", "option"),
    ],
)
def test_what_can_t_be_run_says_so(command: str, node: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        words_of(run(node=node), NodesSettings(on_quarantine=command))


def test_a_command_is_run_once_and_told_as_done(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = f'import sys; open("{told}", "a").write("|".join(sys.argv[1:]) + "\\n")'
    hooks, runner = NodeHooks(NodesSettings(on_quarantine=python(code))), ActionRunner()
    given = orders(run(reason="xid 79; $(reboot)"))
    follow(hooks, given, runner)
    follow(hooks, given, runner)
    assert told.read_text() == "n1|xid 79; $(reboot)\n"
    assert hooks.outcomes == {"quarantine:m:5.000": "done"}
    assert runner.done["on_quarantine"] == 1


def test_another_sidecar_s_and_what_is_over_is_left_alone() -> None:
    hooks, runner = NodeHooks(NodesSettings(on_quarantine="false")), ActionRunner()
    follow(hooks, orders(run(by="b/i"), run(outcome="done"), run(by="")), runner)
    assert hooks.outcomes == {}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (python('print("no such node"); raise SystemExit(3)'), "exit code 3: no such node"),
        ("/no/such/command {node}", "it can't be run"),
        (python("import os; os.kill(os.getpid(), 9)"), "ended by signal 9"),
    ],
)
def test_a_command_that_fails_is_told_and_counted(command: str, says: str) -> None:
    hooks, runner = NodeHooks(NodesSettings(on_return=command)), ActionRunner()
    follow(hooks, orders(run(event="return")), runner)
    assert hooks.outcomes["return:m:5.000"].startswith(says)
    assert runner.failed["on_return"] == 1


def test_a_command_that_hangs_is_ended_and_the_loop_never_waits_for_it() -> None:
    settings = NodesSettings(on_quarantine="sleep 600", hook_timeout_s=30.0)
    hooks, runner = NodeHooks(settings), ActionRunner()
    given, now = orders(run()), time.monotonic()
    hooks.follow(given, runner, now)
    assert time.monotonic() - now < 5.0
    hooks.follow(given, runner, now + 29.0)
    assert hooks.outcomes == {}
    hooks.follow(given, runner, now + 31.0)
    assert hooks.outcomes == {"quarantine:m:5.000": "it took longer than 30 s"}
    assert runner.failed["on_quarantine"] == 1


def test_at_the_end_of_the_sidecar_what_was_asked_for_last_is_still_run(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = f'import sys; open("{told}", "w").write(sys.argv[1])'
    hooks = NodeHooks(NodesSettings(on_quarantine=python(code)))
    hooks.conclude(orders(run()), ActionRunner())
    assert told.read_text() == "n1"


def test_outcomes_don_t_pile_up() -> None:
    hooks = NodeHooks(NodesSettings(on_quarantine="/no/such/command"))
    runs = [run(since_unix_s=float(n)) for n in range(KEPT + 9)]
    hooks.follow(orders(*runs), ActionRunner(), 0.0)
    assert len(hooks.outcomes) == KEPT
    assert runs[-1].key in hooks.outcomes


def test_a_command_is_given_no_secret_that_it_could_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_REDIS_PASSWORD", "hunter2")
    code = 'import os, sys; sys.exit(os.environ.get("HOLDFAST_REDIS_PASSWORD", "none"))'
    hooks = NodeHooks(NodesSettings(on_quarantine=f"{sys.executable} -c '{code}'"))
    follow(hooks, orders(run()), ActionRunner())
    (outcome,) = hooks.outcomes.values()
    assert outcome == "exit code 1: none"
