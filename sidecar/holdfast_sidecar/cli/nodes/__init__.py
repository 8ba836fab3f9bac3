"""`holdfast nodes`: which nodes a job has, whether they are fit, and who is kept outside why."""

from __future__ import annotations

import click

from holdfast_sidecar.cli.nodes.listing import print_list
from holdfast_sidecar.cli.nodes.options import job_option, json_option
from holdfast_sidecar.cli.nodes.showing import show_command
from holdfast_sidecar.cli.nodes.testing import test_command
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.config.loading import Effective


@click.group(invoke_without_command=True)
@job_option
@json_option
@settings_options
@click.pass_context
def nodes(context: click.Context, effective: Effective, job: str | None, as_json: bool) -> None:
    """List a job's nodes: who trains, who waits, who is fit, who is kept outside and why.

    A node that is unfit waits outside, and a spare is taken in its place; what its health gate
    looks at is in docs/nodes.md. `holdfast node drain` takes a node out by hand.

    \b
      holdfast nodes
      holdfast nodes --json | jq '.[] | select(.gate.state == "unfit") | .node'
      holdfast nodes show node7            all that is known of one
      holdfast nodes test node7            seconds of work, beside the job's other nodes

    \b
    Exit code: 0 listed
               1 the job's server does not answer
               2 something you gave is wrong
               3 there is no such job
    """
    if context.invoked_subcommand is None:
        print_list(effective, job, as_json)
    for name in ("job", "as_json"):
        is_given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if context.invoked_subcommand is not None and is_given:
            option = "--json" if name == "as_json" else "--job"
            raise click.UsageError(f"write {option} behind {context.invoked_subcommand}")


for command in (show_command, test_command):
    nodes.add_command(command)
