import dataclasses

import pytest

from holdfast_sidecar.config.settings import Settings, StallSettings
from holdfast_sidecar.config.timeouts import problems, rungs


def changed(name: str, value: object) -> Settings:
    section, _, field = name.partition(".")
    part = dataclasses.replace(getattr(Settings(), section), **{field: value})
    return dataclasses.replace(Settings(), **{section: part})


def test_the_defaults_fit_together() -> None:
    assert problems(Settings()) == []
    assert all(rung.holds for rung in rungs(Settings()))


def test_settings_by_which_no_sidecar_serves_keep_no_other_command_from_its_work() -> None:
    assert problems(changed("sidecar.listen", "0.0.0.0:9750")) == []


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("sidecar.heartbeat_s", 0.5, "one late heartbeat would look like a lost node"),
        ("sidecar.node_timeout_s", 601.0, "given up before a lost node is noticed"),
        ("sidecar.lease_s", 0.5, "lose its lease between two renewals"),
        ("redis.timeout_s", 1.9, "one slow call would cost the leader its lease"),
        ("sidecar.grace_s", 2.0, "leave before a new leader"),
        ("sidecar.tick_s", 2.0, "no silence would ever be counted"),
        ("stall.act_after_s", 0.5, "acted on before it is declared"),
        ("stall.act_after_s", 5.0, "evidence is still being kept"),
        ("stall.act_after_s", -1.0, "stall.act_after_s = -1 must be at least 0"),
        ("checkpoint.write_timeout_s", 3600.0, "would be told as silent"),
        ("redis.timeout_s", 0.0, "redis.timeout_s = 0 must be above zero"),
        ("sidecar.tick_s", 0.0, "must be above zero"),
        ("checkpoint.deadline_s", 0.0, "must be above zero"),
        ("policy.max_restarts", -2, "policy.max_restarts = -2 must be at least -1"),
        ("policy.backoff_limit_s", 0.5, "must be at least 1"),
        ("stall.factor", 0.9, "must be at least 1"),
        ("checkpoint.keep", 0, "must be at least 1"),
        ("sidecar.mode", "watch", "must be one of act, suggest, observe"),
        ("sidecar.listen", "9400", "must be address:port"),
        ("sidecar.listen", "0.0.0.0:99999", "must be address:port"),
        ("sidecar.tls_cert_file", "/tls.crt", "go together: set both"),
        ("sidecar.advertise", "node7:http", "sidecar.advertise = 'node7:http' is neither"),
        ("checkpoint.most_every_s", 30.0, "checkpoint.most_every_s = 30 must be at least 60"),
        ("snapshot.every_steps", -2, "snapshot.every_steps = -2 must be at least -1"),
        ("snapshot.slots", 0, "must be at least 1"),
        ("policy.blames_half_life_s", 0.0, "must be above zero"),
        ("policy.quarantine_share", 10.0, "policy.quarantine_share = 10 is a share"),
        ("gate.expected_gpus", -1, "gate.expected_gpus = -1 must be at least 0"),
        ("nodes.hook_timeout_s", 0.0, "must be above zero"),
        ("nodes.on_quarantine", "'nope", "can't be split into words: No closing quotation"),
        ("nodes.on_return", " ", "can't be split into words: no command is set"),
        ("nodes.on_return", "echo {nod}", "names {nod}, for which nothing is known; known: {node}"),
        ("gpu.every_s", 0.0, "gpu.every_s = 0 must be above zero"),
        ("fabric.ports", -3, "fabric.ports = -3 must be at least 0"),
        ("fabric.flaps", 0, "fabric.flaps = 0 must be at least 1"),
        ("host.every_s", 0.0, "host.every_s = 0 must be above zero"),
        ("host.storage_every_s", 0.0, "must be above zero"),
        ("host.hardware_every_s", 0.0, "must be above zero"),
        ("fabric.rate_bytes_per_s", -1.0, "fabric.rate_bytes_per_s = -1 must be at least 0"),
        ("snapshot.most_share", 0.0, "must be above zero"),
        ("snapshot.most_share", 2.0, "snapshot.most_share = 2 is a share"),
        ("snapshot.memory_share", 50.0, "must be at most 1"),
        ("snapshot.peer", "always", "must be one of off, async, sync"),
        ("snapshot.peer_listen", "9400", "snapshot.peer_listen = '9400' must be address:port"),
        ("snapshot.peer_timeout_s", 3000.0, "wait for their copy"),
    ],
)
def test_each_misfit_is_named(name: str, value: object, says: str) -> None:
    found = problems(changed(name, value))
    assert any(says in line for line in found), found


def test_a_limit_of_silence_is_a_rung_where_it_is_set_and_none_elsewhere() -> None:
    """Before it is, however slow a floor or a py-spy, nobody is ended for silence."""
    assert problems(changed("stall.floor_s", 130.0)) == []
    both = StallSettings(act_after_s=900.0, data_stall_timeout_s=600.0)
    (found,) = problems(dataclasses.replace(Settings(), stall=both))
    assert "ended before those that are only silent" in found


@pytest.mark.parametrize(
    "command",
    [
        "",
        "scontrol update nodename={node} state=drain reason='holdfast: {reason}'",
        """kubectl patch node {node} -p '{"spec": {"unschedulable": true}}'""",
        "find {} -name {gpu}:{remedy}",
    ],
)
def test_a_command_that_can_be_run_is_taken(command: str) -> None:
    assert problems(changed("nodes.on_quarantine", command)) == []
