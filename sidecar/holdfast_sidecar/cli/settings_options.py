"""The options by which every command takes its settings; the command gets them loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from holdfast_sidecar.config import loading

FLAGS = {
    "redis": "redis.url",
    "redis_user": "redis.user",
    "redis_password_file": "redis.password_file",
}

Command = Callable[..., Any]


def settings_options(command: Command) -> Command:
    """Add --redis…, --policy and --set; pass the command `effective: configuration.Effective`."""
    return _with_options(command, loading.load)


def serving_options(command: Command) -> Command:
    """Add --listen, which the command gets, and --listen-insecure, which becomes a setting.

    To stand above `settings_options`.
    """
    insecure = click.option(
        "--listen-insecure", is_flag=True, help="Listen beyond loopback without token and TLS."
    )
    where = click.option(
        "--listen", metavar="HOST:PORT", help="Address of /metrics (port 0: any free one)."
    )
    decorated: Command = where(insecure(command))
    return decorated


def read_options(command: Command) -> Command:
    """The same for a command that judges for itself whether the settings fit together."""
    return _with_options(command, loading.read)


def _with_options(command: Command, source: Callable[..., loading.Effective]) -> Command:
    @functools.wraps(command)
    def loaded(*args: Any, policy: str | None, sets: tuple[str, ...], **given: Any) -> Any:
        flags = {name: given.pop(flag) for flag, name in FLAGS.items()}
        if given.pop("listen_insecure", False):
            flags["sidecar.listen_insecure"] = "true"
        return command(*args, effective=source(policy, sets, flags), **given)

    decorated: Command = loaded
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_OPTIONS = (
    click.option("--redis", metavar="URL", help="redis://, rediss://, unix:// or Sentinel URL."),
    click.option("--redis-user", metavar="NAME", help="ACL user."),
    click.option("--redis-password-file", metavar="FILE", help="File that holds the password."),
    click.option(
        "--policy", metavar="FILE", help="Settings file (default: holdfast.toml, if any)."
    ),
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="SECTION.NAME=VALUE",
        help="One setting; repeatable.",
    ),
)
