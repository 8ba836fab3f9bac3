"""The command line of `holdfast run`: torch's own parser, and the options that are Holdfast's."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from torch.distributed.argparse_util import check_env
from torch.distributed.run import get_args_parser

from holdfast_sidecar.config.loading import read_value
from holdfast_sidecar.config.settings import BadInput

OURS = "holdfast"

FLAGS = {
    "redis": "redis.url",
    "redis_user": "redis.user",
    "redis_password_file": "redis.password_file",
    "checkpoint_dir": "checkpoint.dir",
    "time_limit": "policy.time_limit_s",
}
"""Options that are settings under a shorter name."""

DESCRIPTION = """\
Start a script on this node as torchrun would, and keep it running: every option of torchrun has
its effect. Unless --rdzv-backend names one of torch's own backends, nodes meet over Redis and the
job's leader restarts them; --max-restarts, if given, is then a cap on the policy's budget. With one
of torch's own backends (c10d, static, etcd) torch's agent restarts the ranks of its node as it
does under torchrun, and Holdfast's sidecar watches without acting.
"""


@dataclass(frozen=True)
class Arguments:
    """The parsed command line."""

    torch: Namespace
    """As torch's parser made it, with `rdzv_backend` and `max_restarts` None where not given."""
    job: str | None
    node: str | None
    spares: int
    policy: str | None
    sets: tuple[str, ...]
    flags: dict[str, str | None]
    uses_standby: bool = True

    @property
    def uses_own_rendezvous(self) -> bool:
        """Whether the leader's plan drives this job, rather than one of torch's rendezvous."""
        return self.torch.standalone or self.torch.rdzv_backend in (None, OURS)


def make_parser() -> ArgumentParser:
    """torch's parser with our options in a group of their own."""
    parser: ArgumentParser = get_args_parser()
    parser.prog = "holdfast run"
    parser.usage = "holdfast run [options] SCRIPT [options of the script]"
    parser.description = DESCRIPTION
    parser.error = refuse  # type: ignore[method-assign]
    ours = parser.add_argument_group("Holdfast")
    ours.add_argument(
        "--redis",
        metavar="URL",
        help="redis://, rediss://, unix:// or Sentinel "
        "URL; needed by more than one node, else a server is started here.",
    )
    ours.add_argument("--redis-user", metavar="NAME", help="ACL user.")
    ours.add_argument("--redis-password-file", metavar="FILE", help="File with the password.")
    ours.add_argument(
        "--job",
        metavar="NAME",
        help="The job's name, whose checkpoints it goes on from (default: --rdzv-id, else the "
        "script's name with an ending; several nodes need one, except under Slurm).",
    )
    ours.add_argument("--node", metavar="NAME", help="This node's name (default: host name).")
    ours.add_argument(
        "--policy", metavar="FILE", help="Settings file (default: holdfast.toml, if there is one)."
    )
    ours.add_argument(
        "--spares",
        metavar="N",
        type=int,
        default=0,
        help="Nodes that wait to replace a lost one, beside those of --nnodes.",
    )
    ours.add_argument("--checkpoint-dir", metavar="DIR", help="Where checkpoints go.")
    ours.add_argument("--checkpoint-every", metavar="N", help="`100steps`, or a time such as `5m`.")
    ours.add_argument(
        "--time-limit",
        metavar="TIME",
        help="Save and stop before this launch has run so long, such as `12h` (default: what Slurm "
        "says, under it).",
    )
    ours.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        action="append",
        default=[],
        dest="sets",
        help="One setting; repeatable.",
    )
    ours.add_argument(
        "--no-standby",
        action=check_env,
        help="Keep no warm interpreters: restarts then take the time that importing torch takes.",
    )
    unset = {"rdzv_backend": None, "max_restarts": None}
    given = {name for name in unset if f"PET_{name.upper()}" in os.environ}
    parser.set_defaults(**{name: value for name, value in unset.items() if name not in given})
    return parser


def refuse(message: str) -> NoReturn:
    """What is wrong, without the 28 lines of usage that argparse would print before it."""
    if "training_script" in message:
        message = "no script to run was given"
    raise BadInput(f"{message} (see `holdfast run --help`)")


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Parse; BadInput for what can't be understood. Leaves after --help."""
    found = make_parser().parse_args(arguments)
    if found.spares < 0:
        raise BadInput("--spares can't be negative")
    sets = tuple(found.sets) + tuple(parse_checkpoint_every(found.checkpoint_every))
    return Arguments(
        torch=found,
        job=found.job,
        node=found.node,
        spares=found.spares,
        policy=found.policy,
        sets=sets,
        flags={setting: getattr(found, name) for name, setting in FLAGS.items()},
        uses_standby=not found.no_standby,
    )


def parse_checkpoint_every(text: str | None) -> list[str]:
    """`100steps` or a duration, as settings; empty when not given. Who wants no checkpoints leaves
    the option out: 0 is refused."""
    if text is None:
        return []
    number = text.removesuffix("steps").removesuffix("step").strip()
    is_of_steps = number != text
    try:
        is_some = float(int(number) if is_of_steps else read_value("every_s", float, text)) > 0
    except ValueError:
        is_some = False
    if not is_some:
        raise BadInput(f"--checkpoint-every {text}: write it as 100steps, or as a time like 5m")
    if is_of_steps:
        return [f"checkpoint.every_steps={int(number)}"]
    return ["checkpoint.every_steps=0", f"checkpoint.every_s={text}"]
