"""`holdfast run`: becomes the launcher, so that the pid a user started is the launcher's."""

from __future__ import annotations

import os
import sys

import click


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Start a training script on this node as torchrun would, and keep it running."""
    # Options are the launcher's to parse: it has torch's parser, which this command must not load.
    os.execv(sys.executable, [sys.executable, "-m", "holdfast_sidecar.launcher", *arguments])
