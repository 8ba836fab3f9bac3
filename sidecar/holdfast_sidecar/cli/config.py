"""`holdfast config`: the effective settings, and where each came from."""

from __future__ import annotations

import json

import click

from holdfast_sidecar.cli.options import settings_options
from holdfast_sidecar.cli.tables import table
from holdfast_sidecar.config.addresses import describe
from holdfast_sidecar.config.loading import DEFAULT, Effective, Value, flatten, write_value


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
