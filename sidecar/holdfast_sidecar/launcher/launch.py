"""One launch, from the command line to the exit code: checks, directories, server, sidecar, agent.

Whatever is refused is refused before anything is started; whatever was started is ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.elastic import events
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.elastic.rendezvous import RendezvousParameters, RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import parse_min_max_nnodes

from holdfast.contract import environment
from holdfast.contract.environment import python_path
from holdfast_sidecar.checkpoint.ledger import other_owners, untouched_here
from holdfast_sidecar.config import loading
from holdfast_sidecar.config.addresses import exposure
from holdfast_sidecar.config.loading import COMMAND_LINE, Effective
from holdfast_sidecar.config.paths import LONGEST_NAME, user_name
from holdfast_sidecar.config.settings import BadInput, CheckpointSettings, Settings
from holdfast_sidecar.launcher import finished_jobs, ownership, sidecar_process
from holdfast_sidecar.launcher.agent import HoldfastAgent, JobFailed, StockAgent
from holdfast_sidecar.launcher.arguments import Arguments, Launch, make_launch
from holdfast_sidecar.launcher.early import say
from holdfast_sidecar.launcher.join import Entrance, Timeouts, read_timeouts
from holdfast_sidecar.launcher.ownership import scheduler_launch
from holdfast_sidecar.launcher.rank_process import SHARED_STORE_OFF, RankContext
from holdfast_sidecar.launcher.rendezvous import (
    HoldfastRendezvous,
    JobStopped,
    NotFormedAgain,
    Unled,
)
from holdfast_sidecar.launcher.shutdown import Preempted, PreemptionNotice, handle, heeded, ignore
from holdfast_sidecar.launcher.sidecar_process import (
    JobServer,
    SidecarProcess,
    SlotHolder,
    has_own_sidecar,
)
from holdfast_sidecar.launcher.standby import Standby
from holdfast_sidecar.policy.budget import EXIT_REQUEUE
from holdfast_sidecar.startup import check_node, losses

logger = logging.getLogger(__name__)

TORCH_SIGNALS = "TORCHELASTIC_SIGNALS_TO_HANDLE"


@dataclass(frozen=True)
class LaunchSite:
    """This node of the job, ready to run ranks."""

    owned: ownership.NodeOwnership
    server: JobServer
    launch: Launch
    entrance: Entrance

    @property
    def job(self) -> str:
        """The job's name."""
        return self.entrance.job

    @property
    def settings(self) -> Settings:
        """This node's settings, with the server that is really used."""
        return self.entrance.settings

    @property
    def context(self) -> RankContext:
        """What every rank here is told; attempt and epoch come with the plan."""
        return RankContext(
            job=self.job,
            node=self.owned.node,
            attempt=0,
            epoch=0,
            places=self.owned.places,
            hooks_path=python_path(),
            checkpoint_dir=self.settings.checkpoint.dir,
            checkpoint_key_file=self.settings.checkpoint.key_file,
            checkpoint_write_timeout_s=self.settings.checkpoint.write_timeout_s,
            takes_snapshots=self.settings.snapshot.every_steps >= 0,
            flight_recorder=self.settings.stall.flight_recorder,
            peer_copies=self.settings.snapshot.peer,
            peer_timeout_s=self.settings.snapshot.peer_timeout_s,
        )


def launch(arguments: Arguments, at_exit: contextlib.ExitStack) -> None:
    """Run the job's part on this node to its end. Raises what ended it, if not success.

    `at_exit` takes what may be removed only once the ranks' error files were read.
    """
    nodes = parse_nodes(arguments)
    effective = load_settings(arguments)
    redis_url = "" if arguments.torch.standalone else effective.settings.redis.url
    needs_server = arguments.uses_own_rendezvous
    is_several = nodes[1] > 1 or arguments.spares > 0
    if not redis_url and needs_server and is_several:
        raise BadInput(
            "more than one node needs a common Redis: give --redis URL "
            "(or choose one of torch's own rendezvous with --rdzv-backend)"
        )
    job = name_job(arguments, not redis_url, is_several, effective.settings.checkpoint.dir)
    given = arguments.node and ownership.checked("--node", arguments.node)
    remark_on_checkpoints(effective.settings.checkpoint, job)
    made = make_launch(arguments, job, effective.settings.policy)
    at_exit.callback(made.remove_unasked_logs)
    # What else is in there for one of torch's own rendezvous is torch's to judge.
    conf = made.config.rdzv_configs if needs_server else {}
    timeouts = read_timeouts(conf, effective.settings.policy)
    check_node(effective.settings, made.config.nproc_per_node)
    for loss in losses(effective.settings).values():
        logger.warning("%s", loss)
    if why := made.why_unhooked():
        logger.warning("ranks will run without Holdfast's hooks: %s", why)
    with contextlib.ExitStack() as ends:
        ends.callback(finished_jobs.trim_in_time, effective.settings.paths)
        ownership.sweep(effective.settings.paths)
        name = given or (None if redis_url else ownership.as_name(socket.gethostname()))
        owned = ownership.own_node(effective.settings.paths, job, name)
        ends.callback(_tidy, owned.release)
        ownership.sweep_pages(owned.places.shm)
        ownership.sweep_slots(owned.places.shm)
        if redis_url:
            server = sidecar_process.reach(effective.settings.redis)
        else:
            server = sidecar_process.start_own(effective.settings.redis, owned.places)
        ends.callback(_tidy, server.close, owned.places)
        settings = dataclasses.replace(effective.settings, redis=server.settings)
        entrance = make_entrance(settings, job, arguments, nodes, made.config, timeouts)
        site = LaunchSite(owned, server, made, entrance)
        if needs_server:
            entrance.check_shared()
        if redis_url and not (arguments.job or arguments.torch.rdzv_id != "none"):
            logger.info("this job is called %s, as neither --job nor --rdzv-id was given", job)
        server.write_record(owned.places)
        beside = ends.enter_context(sidecar(site, effective, observes=not needs_server))
        ends.callback(ignore, arguments.torch.signals_to_handle)
        run_agent(site, arguments, beside)


def _tidy(end: Callable[..., None], *given: object) -> None:
    """What can't be removed, as from a disk that has turned read-only, doesn't change how the job
    ended."""
    try:
        end(*given)
    except OSError as error:
        logger.warning("%s: it is left there", error)


def parse_nodes(arguments: Arguments) -> tuple[int, int]:
    """Fewest and most nodes."""
    try:
        least, most = parse_min_max_nnodes(arguments.torch.nnodes)
    except (ValueError, RuntimeError):
        raise BadInput(f"--nnodes {arguments.torch.nnodes}: write N or MIN:MAX") from None
    if not 0 < least <= most:
        raise BadInput(f"--nnodes {arguments.torch.nnodes}: needs 0 < MIN <= MAX")
    return least, most


def load_settings(arguments: Arguments) -> Effective:
    """The settings; an --rdzv-endpoint that is a Redis URL serves where no other is given.

    Refused where the sidecar that is to be started would not serve: here somebody reads why.
    """
    effective = loading.load(arguments.policy, arguments.sets, arguments.flags)
    url = sidecar_process.given_url(effective.settings.redis, arguments.torch.rdzv_endpoint)
    if url != effective.settings.redis.url:
        flags = arguments.flags | {"redis.url": url}
        effective = loading.load(arguments.policy, arguments.sets, flags)
    if problem := exposure(effective.settings.sidecar):
        raise BadInput(problem)
    return effective


def has_rdzv_id(arguments: Arguments) -> bool:
    """Whether --rdzv-id says which nodes belong together."""
    return bool(arguments.torch.rdzv_id != "none" and not arguments.torch.standalone)


def name_job(arguments: Arguments, is_alone: bool, is_several: bool, checkpoint_dir: str) -> str:
    """--job, else --rdzv-id, else the script's name and what tells this launch from all others.

    Checkpoints are the job's of that name, so where it saves the same command has the same name.
    is_alone: on a server of its own. is_several: more launchers than this one must find the name.
    """
    if arguments.job:
        return ownership.checked("--job", arguments.job)
    if has_rdzv_id(arguments):
        return ownership.as_name(arguments.torch.rdzv_id)
    script = ownership.as_name(Path(arguments.torch.training_script).stem)
    if is_alone:
        place = hashlib.sha256(checkpoint_dir.encode()).hexdigest()[:6] if checkpoint_dir else ""
        return f"{script[:50]}-{place or secrets.token_hex(3)}"
    # One node that saves nowhere has nothing to find again, and others like it may run beside it.
    is_known = is_several or checkpoint_dir
    launch = scheduler_launch(os.environ, is_one_node=not is_several) if is_known else ""
    if not launch and is_several:
        raise BadInput(
            "several nodes on a shared Redis need a name that no other launch has: give --job NAME "
            f"on each of them, or {environment.LAUNCH_ID} in their environment"
        )
    if not launch and checkpoint_dir:
        here = f"{user_name()}@{socket.gethostname()}:{checkpoint_dir}"
        launch = hashlib.sha256(here.encode()).hexdigest()[:8]
    launch = ownership.as_name(launch or secrets.token_hex(4))
    return f"{script[: LONGEST_NAME - len(launch) - 1]}-{launch}"


def remark_on_checkpoints(settings: CheckpointSettings, job: str) -> None:
    """Say at once what would come as a surprise after hours of training."""
    if not settings.dir and (settings.every_s or settings.every_steps):
        logger.warning("nothing will be saved: an interval is given, and no --checkpoint-dir")
    if others := other_owners(settings.dir, job):
        logger.warning(
            "%s holds checkpoints of job %s and none of job %s, which starts from nothing:"
            " to go on from them give that --job",
            settings.dir,
            ", ".join(others),
            job,
        )
    for line in untouched_here(settings.dir):
        logger.warning("%s", line)


@contextlib.contextmanager
def sidecar(
    site: LaunchSite, effective: Effective, observes: bool
) -> Iterator[SidecarProcess | None]:
    """A sidecar for this node: one that is there already, else one of our own."""
    if has_own_sidecar(site.owned.places):
        logger.info("a sidecar for node %s runs already: it is used", site.owned.node)
        yield None
        return
    arguments = sidecar_arguments(site, effective, observes)
    with SlotHolder(site.owned.places.shm) as holder:
        process = SidecarProcess(arguments, site.owned.places, holder.link)
        process.start()
        try:
            yield process
        except (SignalException, Preempted):
            process.note_told_to_end()
            raise
        finally:
            process.stop()


def sidecar_arguments(site: LaunchSite, effective: Effective, observes: bool) -> list[str]:
    """The sidecar's command line; where secrets lie may be on it, secrets may not."""
    origins = dict(effective.origins)
    settings = site.settings
    if site.server.own is not None:
        origins |= dict.fromkeys(("redis.url", "redis.password_file"), COMMAND_LINE)
        origins["redis.user"] = loading.DEFAULT
    if observes:
        watching = dataclasses.replace(settings.sidecar, mode="observe")
        settings = dataclasses.replace(settings, sidecar=watching)
        origins["sidecar.mode"] = COMMAND_LINE
    told = dataclasses.replace(effective, settings=settings, origins=origins)
    who = ["--job", site.job, "--node", site.owned.node, "--launcher-pid", str(os.getpid())]
    return [*who, *loading.arguments(told)]


def run_agent(site: LaunchSite, arguments: Arguments, beside: SidecarProcess | None) -> None:
    """Run torch's agent: ours on the leader's plan, or torch's on torch's rendezvous."""
    # Where torch starts ranks it handles these, and four of its own where none are named here.
    os.environ[TORCH_SIGNALS] = arguments.torch.signals_to_handle
    standby = None
    if arguments.uses_own_rendezvous:
        rendezvous = make_rendezvous(site, arguments)
        if beside is not None:
            beside.tell_end = lambda pid: rendezvous.reporter.say(ended_sidecar=pid)
        rendezvous.watch.start()
        preemption = make_preemption(site, rendezvous)
        if beside is not None:
            beside.left_s = preemption.left_s
        standby = Standby() if arguments.uses_standby else None
        agent: LocalElasticAgent = HoldfastAgent(
            site.launch.make_spec(rendezvous),
            rendezvous,
            site.context,
            preemption,
            standby,
            **site.launch.agent_options(),
        )
    else:
        os.environ.setdefault(SHARED_STORE_OFF, "1")
        rendezvous = get_rendezvous_handler(stock_parameters(site.launch))
        agent = StockAgent(
            site.launch.make_spec(rendezvous),
            site.context,
            **site.launch.agent_options(),
        )
    try:
        follow(agent, rendezvous, site.launch)
    finally:
        if standby is not None:
            standby.close()


def make_preemption(site: LaunchSite, rendezvous: HoldfastRendezvous) -> PreemptionNotice:
    """What is done when a scheduler wants this node back; the agent is woken by it."""
    return PreemptionNotice(site.settings.policy.preemption_grace_s, rendezvous.watch.wake)


def follow(agent: LocalElasticAgent, rendezvous: object, made: Launch) -> None:
    """Run the agent as torch's launcher does: events, failures as ChildFailedError, shutdown."""
    handler = made.config.event_log_handler
    closes = True
    try:
        result = agent.run()
        events.record(agent.get_event_succeeded(), handler)
        if result is not None and result.is_failed():
            raise ChildFailedError(Path(made.script).name, result.failures)
    except JobFailed as stopped:
        events.record(agent.get_event_failed(), handler)
        if not stopped.failures:
            raise
        raise ChildFailedError(Path(made.script).name, dict(stopped.failures)) from stopped
    except (Preempted, Unled):
        events.record(agent.get_event_failed(), handler)
        raise
    except SignalException:
        # torch's rendezvous would be closed for the other nodes too; ours says that it left.
        closes = isinstance(rendezvous, HoldfastRendezvous)
        events.record(agent.get_event_failed(), handler)
        raise
    finally:
        if closes:
            rendezvous.shutdown()  # type: ignore[attr-defined]


def stock_parameters(made: Launch) -> RendezvousParameters:
    """What torch's own rendezvous is asked for."""
    config = made.config
    endpoint, run_id = config.rdzv_endpoint, config.run_id
    return RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=endpoint,
        run_id=run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )


def make_entrance(
    settings: Settings,
    job: str,
    arguments: Arguments,
    nodes: tuple[int, int],
    config: LaunchConfig,
    timeouts: Timeouts,
) -> Entrance:
    """What the command line asks of the job for this node."""
    given = arguments.torch
    return Entrance(
        job=job,
        settings=settings,
        nodes=nodes,
        spares=arguments.spares,
        slots=config.nproc_per_node,
        script=given.training_script,
        arguments=tuple(given.training_script_args),
        local_address=given.local_addr,
        timeouts=timeouts,
        max_restarts=None if given.max_restarts is None else int(given.max_restarts),
        role=given.role,
        has_sidecar=True,
        has_id=not arguments.job and has_rdzv_id(arguments),
    )


def make_rendezvous(site: LaunchSite, arguments: Arguments) -> HoldfastRendezvous:
    """Our rendezvous handler for this node; nothing is started yet."""
    given = arguments.torch
    rendezvous = site.entrance.make_rendezvous(site.owned)
    # On one node --master-addr and --master-port are what the ranks are given, as in torchrun.
    rendezvous.master_address = given.master_addr if site.entrance.nodes[1] == 1 else ""
    rendezvous.master_port = int(given.master_port or 0)
    return rendezvous


# How a launch ended, as a person and a scheduler see it: one line, torch's summary, exit code.

NO_FILE = "<N/A>"
"""As torch has it."""


def exit_code_of(arguments: Arguments) -> int:
    """Launch; say what ended it. BadInput goes to the caller."""
    with contextlib.ExitStack() as at_exit:
        try:
            arguments.torch.signals_to_handle = heeded(arguments.torch.signals_to_handle)
            handle(arguments.torch.signals_to_handle)
            # torch's decorator leaves the first failure's error file to a launcher above this one.
            record(launch)(arguments, at_exit)
        except ChildFailedError as failed:
            at_exit.close()
            say(summary(failed))
            stopped = failed.__cause__
            return leave(stopped) if isinstance(stopped, JobStopped) else 1
        except JobStopped as stopped:
            return leave(stopped)
        except Unled:
            return EXIT_REQUEUE
        except NotFormedAgain as error:
            say(f"holdfast: {error}")
            return 1
        except Preempted as told:
            say(f"holdfast: {told}")
            return EXIT_REQUEUE
        except RendezvousTimeoutError as late:
            raise BadInput(str(late)) from late
        except SignalException as received:
            name = received.sigval.name
            say(f"holdfast: received {name}: this node's launch was ended")
            return 1
    return 0


def summary(failed: ChildFailedError) -> str:
    """torch's, but it names no file that is gone; what stood in there is its traceback."""
    for failure in failed.failures.values():
        if not Path(failure.error_file).exists():
            failure.error_file = NO_FILE
    return str(failed.format_msg())


def leave(stopped: JobStopped) -> int:
    """The plan's reason and exit code."""
    say(f"holdfast: {' '.join(str(stopped).split())}")
    return stopped.plan.exit_code
