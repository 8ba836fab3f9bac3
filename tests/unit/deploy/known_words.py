"""Whether a command line and its environment are ones that Holdfast takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.contract import environment
from holdfast_sidecar.cli.main import Commands, cli
from holdfast_sidecar.config.addresses import exposure
from holdfast_sidecar.config.loading import Effective, known_names, load
from holdfast_sidecar.launcher.arguments import Arguments, parse_arguments

SETTINGS_FLAGS = {
    "redis": "redis.url",
    "redis_user": "redis.user",
    "redis_password_file": "redis.password_file",
}


def known_variables() -> set[str]:
    """Every variable that Holdfast reads."""
    spelled = {name: value for name, value in vars(environment).items() if name.isupper()}
    told = {value for value in spelled.values() if isinstance(value, str)}
    told.discard(environment.SETTINGS_PREFIX)
    return told | {
        environment.SETTINGS_PREFIX + setting.upper().replace(".", "_") for setting in known_names()
    }


def ours(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("HOLDFAST_")}


def mentioned(text: str) -> set[str]:
    """The variables of ours that a text names."""
    return set(re.findall(r"HOLDFAST_[A-Z_]*[A-Z]", text))


def parse_run(words: Sequence[str], variables: Mapping[str, str]) -> tuple[Arguments, Effective]:
    """`holdfast run …`; fails where it would be refused."""
    assert list(words[:2]) == ["holdfast", "run"]
    parsed = parse_arguments(list(words[2:]))
    effective = load(sets=parsed.sets, flags=parsed.flags, environment=ours(variables))
    assert not exposure(effective.settings.sidecar)
    return parsed, effective


def parse_command(
    words: Sequence[str], variables: Mapping[str, str], policy: str | None = None
) -> tuple[dict[str, Any], Effective]:
    """Any other command: its options, and the settings that it would have."""
    assert words[0] == "holdfast"
    assert isinstance(cli, Commands)
    context = cli.make_context("holdfast", [words[1]])
    command = cli.get_command(context, words[1])
    assert command is not None, words[1]
    options = command.make_context(words[1], list(words[2:])).params
    flags = {setting: options.get(flag) for flag, setting in SETTINGS_FLAGS.items()}
    if options.get("listen_insecure"):
        flags["sidecar.listen_insecure"] = "true"
    policy = policy or options.get("policy")
    effective = load(policy, options.get("sets", ()), flags, ours(variables))
    if "listen" in options:  # it serves
        served = effective.settings.sidecar
        assert not exposure(replace(served, listen=options["listen"] or served.listen))
    return options, effective
