"""`holdfast checkpoint`: ask for one now, see what there is, verify every byte."""

from __future__ import annotations

import click

from holdfast_sidecar.cli.checkpoint.listing import list_command
from holdfast_sidecar.cli.checkpoint.now import now_command
from holdfast_sidecar.cli.checkpoint.planning import plan_command
from holdfast_sidecar.cli.checkpoint.verifying import verify_command


@click.group()
def checkpoint() -> None:
    """Ask a job for a checkpoint; list and verify those there are.

    \b
      holdfast checkpoint now                         and wait until it is complete
      holdfast checkpoint list --dir /ckpt            what there is, and what a restart would try
      holdfast checkpoint plan                        how often they come, and why
      holdfast checkpoint verify --dir /ckpt 1200     read every byte of one
    """


for command in (now_command, list_command, verify_command, plan_command):
    checkpoint.add_command(command)
