"""The options by which every command takes its settings; the command gets them loaded."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from holdfast.contract import environment
from holdfast_sidecar.cli.tables import table
from holdfast_sidecar.config import loading
from holdfast_sidecar.config.addresses import describe
from holdfast_sidecar.config.loading import DEFAULT, Effective, Value, flatten, write_value
from holdfast_sidecar.config.settings import BadInput

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


# A number on the command line that is one: a range refuses no NaN, which is neither below it nor
# above.


class FiniteRange(click.FloatRange):
    """A FloatRange of numbers that can be counted with."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; UsageError where it is none."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number to count with.", param, ctx)
        return number


# The job of a command that takes it as an argument and as --job: named once, or twice the same.


def one_job(argument: str | None, option: str | None) -> str | None:
    """The name that was given, the argument before what HOLDFAST_JOB says. BadInput where the
    command line names two."""
    source = click.get_current_context().get_parameter_source("job")
    if argument and source is ParameterSource.COMMANDLINE and argument != option:
        raise BadInput(f"JOB or --job: one of them, not {argument!r} and {option!r}")
    return argument or option


# Options that several of the checkpoint commands share.

job_option = click.option(
    "--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here."
)
json_option = click.option("--json", "as_json", is_flag=True, help="For scripts.")
dir_option = click.option(
    "--dir",
    "--checkpoint-dir",
    "given",
    metavar="DIR|URL",
    help="Default: checkpoint.dir, else where the job saves.",
)


# Options that the commands that talk to a Grafana share.

grafana_option = click.option(
    "--grafana", required=True, metavar="URL", help="Its address, with the sub-path if it has one."
)
token_option = click.option(
    "--token-file",
    metavar="FILE",
    help=f"Has a service account's token. Default: ${environment.GRAFANA_TOKEN}.",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only say what would be changed, line by line."
)


# `holdfast config`: the effective settings, and where each came from.


@click.command()
@click.option("--changed", is_flag=True, help="Only what is not a default.")
@click.option("--json", "as_json", is_flag=True, help="For scripts: name -> value and origin.")
@settings_options
def config(effective: Effective, changed: bool, as_json: bool) -> None:
    """Print every effective setting and where it came from.

    A flag beats the environment, that beats the file, that beats the default. Refuses what `run`
    would refuse: unknown names, wrong values, timeouts in the wrong order.

    \b
      holdfast config --changed
      holdfast config --policy my.toml --set checkpoint.every_s=5m
      HOLDFAST_SET_CHECKPOINT_EVERY_S=5m holdfast config --json
    """
    rows = [
        (name, shown(name, value), effective.origins[name])
        for name, value in flatten(effective.settings)
        if not changed or effective.origins[name] != DEFAULT
    ]
    if as_json:
        facts = {name: {"value": value, "origin": origin} for name, value, origin in rows}
        click.echo(json.dumps(facts, indent=2))
    elif rows:
        click.echo(
            table(["setting", "value", "from"], [[n, write_value(v), o] for n, v, o in rows])
        )
    else:
        click.echo("every setting has its default")


def shown(name: str, value: Value) -> Value:
    """The value as it may be printed: a URL loses its user and password."""
    if name == "redis.url" and value:
        return describe(str(value))
    return value
