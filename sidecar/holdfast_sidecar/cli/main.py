"""The `holdfast` command: finds the subcommand, and turns bad input into one line and exit 2.

Subcommands live in modules of their own, imported only when used: `holdfast --help` and
`holdfast sidecar` load nothing they don't need.
"""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any, NoReturn

import click

from holdfast_sidecar import __version__
from holdfast_sidecar.config.settings import BadInput

COMMANDS = {
    "run": "Start a training script on this node as torchrun would, and keep it running.",
    "status": "Show a job: its attempt, leader, nodes, ranks, findings, last checkpoint.",
    "top": "Watch a job live: ranks x time, phases, step times, findings, incidents, goodput.",
    "explain": "Tell the story of an incident, or (--slow) who slows the job and why.",
    "report": "Tell how well a job does: MFU, tokens, where a step's time goes, what was lost.",
    "trace": "Profile the same step of a slow rank and a healthy one, and set them side by side.",
    "incidents": "List the incidents of a job, or of all jobs here.",
    "checkpoint": "Ask for a checkpoint now; list and verify those there are.",
    "stop": "Stop a job on all its nodes, after a checkpoint if you like.",
    "restart": "Restart a job's ranks on purpose, after a checkpoint; without a node if you like.",
    "pause": "Have nothing done about a job's faults for a while.",
    "resume": "End a pause; let a node in again that is kept outside.",
    "nodes": "List a job's nodes: who is fit, who is kept outside and why; put one to the test.",
    "node": "Take a node out of a job (drain), and let it in again (return).",
    "alerts": "Write out, and check, the Prometheus rules and runbooks that come with Holdfast.",
    "doctor": "Check this machine and the settings before a job does.",
    "config": "Print every effective setting and where it came from.",
    "attach": "Watch a job that srun, mpirun or Kubernetes started; nothing is done to it.",
    "sidecar": "Watch a node by itself (systemd, Slurm, a DaemonSet); `run` does this for you.",
    "dashboards": "Bring the dashboards into a Grafana or into files; mark incidents there.",
    "demo": "See a real job survive kills, freezes and a lost node, on this machine.",
}
"""Name -> one line. Its module holds a click command called `<name>`."""

MODULES = {
    "alerts": "alerts_check",
    "config": "options",
    "doctor": "doctor.command",
    "incidents": "explain",
    "nodes": "node",
    "pause": "job",
    "restart": "job",
    "resume": "job",
    "stop": "job",
}
"""Name -> its module in this folder, where that is called otherwise."""

ASKS_FOR_HELP: tuple[type[click.UsageError], ...] = (
    (click.exceptions.NoArgsIsHelpError,)
    if hasattr(click.exceptions, "NoArgsIsHelpError")
    else ()  # before 8.2 click prints the help by itself
)
"""A group without a subcommand: the help is the message, and keeps its lines."""


class Commands(click.Group):
    """A group whose subcommands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order a person meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand; None when there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        name = MODULES.get(cmd_name, cmd_name)
        module = importlib.import_module(f"holdfast_sidecar.cli.{name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run, and leave: 2 for what the person can mend, else what the command said."""
        extra["standalone_mode"] = False
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal may lack a sign of ours, as a bar's: that is no reason to say nothing.
                stream.reconfigure(errors="replace")
        try:
            code = super().main(*args, **extra)
        except (BadInput, click.ClickException) as error:
            if isinstance(error, ASKS_FOR_HELP):
                click.echo(error.format_message())
                sys.exit(error.exit_code)
            click.echo(f"holdfast: {one_line(error)}", err=True)
            sys.exit(getattr(error, "exit_code", 2))
        except click.Abort:
            sys.exit(130)
        except BrokenPipeError:
            # Whoever read our output (head, less) has gone; nothing is left to say.
            sys.stdout = None
            sys.exit(0)
        sys.exit(code if isinstance(code, int) else 0)


def one_line(error: BadInput | click.ClickException) -> str:
    """The error in one line; for a wrong option also where the right ones are listed."""
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    text = " ".join(text.split()).rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text += f" (see `{error.ctx.command_path} --help`)"
    return text


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`holdfast COMMAND --help` has examples. Exit code 2: something you gave is wrong; the "
    "line on stderr says what.",
)
@click.version_option(__version__, message="holdfast %(version)s")
def cli() -> None:
    """Keep a PyTorch distributed training job running, and explain it.

    \b
      holdfast run --nproc-per-node 2 train.py        instead of torchrun
      holdfast status                                 how is it doing?
      holdfast explain                                what happened?
    """


def main() -> NoReturn:
    """What `python -m` runs, and the `holdfast` script."""
    cli.main(prog_name="holdfast")


if __name__ == "__main__":
    main()
