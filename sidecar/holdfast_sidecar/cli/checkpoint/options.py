"""Options that several of the checkpoint commands share."""

from __future__ import annotations

import click

from holdfast import environment

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
