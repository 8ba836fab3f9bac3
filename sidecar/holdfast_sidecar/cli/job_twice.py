"""The job of a command that takes it as an argument and as --job: named once, or twice the same."""

from __future__ import annotations

import click
from click.core import ParameterSource

from holdfast_sidecar.config.settings import BadInput


def one_job(argument: str | None, option: str | None) -> str | None:
    """The name that was given, the argument before what HOLDFAST_JOB says. BadInput where the
    command line names two."""
    source = click.get_current_context().get_parameter_source("job")
    if argument and source is ParameterSource.COMMANDLINE and argument != option:
        raise BadInput(f"JOB or --job: one of them, not {argument!r} and {option!r}")
    return argument or option
