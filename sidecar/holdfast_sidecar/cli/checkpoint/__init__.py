"""`holdfast checkpoint`: ask for one now, see what there is, verify every byte."""

from __future__ import annotations

import click

from holdfast_sidecar.cli.checkpoint.listing import list_command
from holdfast_sidecar.cli.checkpoint.now import now_command
from holdfast_sidecar.cli.checkpoint.planning import plan_command
from holdfast_sidecar.cli.checkpoint.pruning import prune_command
from holdfast_sidecar.cli.checkpoint.showing import show_command
from holdfast_sidecar.cli.checkpoint.verifying import verify_command


@click.group()
def checkpoint() -> None:
    """Ask a job for a checkpoint; look at those there are, verify and remove them.

    \b
      holdfast checkpoint now                         and wait until it is complete
      holdfast checkpoint list --dir /ckpt            what there is, and what a restart would try
      holdfast checkpoint show 1200                   all about one
      holdfast checkpoint plan                        how often they come, and why
      holdfast checkpoint verify --dir /ckpt 1200     read every byte of one
      holdfast checkpoint prune --keep 2              remove what nobody needs
    """


for command in (
    now_command,
    list_command,
    show_command,
    verify_command,
    plan_command,
    prune_command,
):
    checkpoint.add_command(command)
