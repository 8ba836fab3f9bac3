"""The options by which every command takes its settings; the command gets them loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from holdfast_sidecar import configuration

FLAGS = {"redis": "redis.url", "redis_user": "redis.user"}
FLAGS |= {"redis_password_file": "redis.password_file"}


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --redis…, --policy and --set; pass the command `effective: configuration.Effective`."""

    @functools.wraps(command)
    def loaded(
        *args: Any, policy: str | None, sets: tuple[str, ...], **given: Any
    ) -> Callable[..., Any]:
        flags = {name: given.pop(flag) for flag, name in FLAGS.items()}
        effective = configuration.load(policy, sets, flags)
        return command(*args, effective=effective, **given)  # type: ignore[no-any-return]

    for option in reversed(_OPTIONS):
        loaded = option(loaded)
    return loaded


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
