"""One launch, from the command line to the exit code: checks, directories, server, sidecar, agent.

Whatever is refused is refused before anything is started; whatever was started is ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.elastic import events
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.run import parse_min_max_nnodes

from holdfast.attachment import python_path
from holdfast_sidecar import __version__, configuration
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.configuration import COMMAND_LINE, Effective
from holdfast_sidecar.coordination.connection import open_store
from holdfast_sidecar.coordination.reports import AgentReport
from holdfast_sidecar.coordination.store import StoreUnavailable
from holdfast_sidecar.launcher import job_server, ownership
from holdfast_sidecar.launcher.address import own_address
from holdfast_sidecar.launcher.agent import HoldfastAgent, JobFailed
from holdfast_sidecar.launcher.arguments import Arguments
from holdfast_sidecar.launcher.job_server import JobServer
from holdfast_sidecar.launcher.machine import read_machine
from holdfast_sidecar.launcher.plan_watch import PlanWatch
from holdfast_sidecar.launcher.rank_environment import SHARED_STORE_OFF, RankContext
from holdfast_sidecar.launcher.rendezvous import (
    LAST_CALL_S,
    HoldfastRendezvous,
    new_incarnation,
)
from holdfast_sidecar.launcher.reporting import Reporter
from holdfast_sidecar.launcher.sidecar_process import SidecarProcess, has_own_sidecar
from holdfast_sidecar.launcher.signals import ignore
from holdfast_sidecar.launcher.standby import Standby
from holdfast_sidecar.launcher.stock_agent import StockAgent
from holdfast_sidecar.launcher.torch_config import Launch, make_launch, supported
from holdfast_sidecar.preflight import check_node
from holdfast_sidecar.settings import Settings
from holdfast_sidecar.shared_settings import check_settings_shared

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """This node of the job, ready to run ranks."""

    job: str
    owned: ownership.Ownership
    settings: Settings
    server: JobServer
    launch: Launch

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
        )


def launch(arguments: Arguments, at_exit: contextlib.ExitStack) -> None:
    """Run the job's part on this node to its end. Raises what ended it, if not success.

    `at_exit` takes what may be removed only once that was told.
    """
    nodes = parse_nodes(arguments)
    effective = load_settings(arguments)
    redis_url = "" if arguments.torch.standalone else effective.settings.redis.url
    needs_server = arguments.uses_own_rendezvous
    if not redis_url and needs_server and (nodes[1] > 1 or arguments.spares):
        raise BadInput(
            "more than one node needs a common Redis: give --redis URL "
            "(or choose one of torch's own rendezvous with --rdzv-backend)"
        )
    job = name_job(arguments, is_alone=not redis_url)
    made = make_launch(arguments, job, effective.settings.policy)
    at_exit.callback(made.remove_unasked_logs)
    check_node(effective.settings, made.config.nproc_per_node)
    with contextlib.ExitStack() as ends:
        ownership.sweep(effective.settings.paths)
        name = arguments.node or (None if redis_url else ownership.as_name(socket.gethostname()))
        owned = ownership.own_node(effective.settings.paths, job, name)
        ends.callback(owned.release)
        ownership.sweep_pages(owned.places.shm)
        if redis_url:
            server = job_server.reach(effective.settings.redis)
        else:
            server = job_server.start_own(effective.settings.redis, owned.places.server)
        ends.callback(server.close, owned.places)
        settings = dataclasses.replace(effective.settings, redis=server.settings)
        site = Site(job, owned, settings, server, made)
        if needs_server:
            check_shared(site, arguments)
        server.write_record(owned.places)
        with sidecar(site, effective, observes=not needs_server):
            ends.callback(ignore, arguments.torch.signals_to_handle)
            run_agent(site, arguments, nodes)


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
    """The settings; an --rdzv-endpoint that is a Redis URL serves where no other is given."""
    effective = configuration.load(arguments.policy, arguments.sets, arguments.flags)
    url = job_server.given_url(effective.settings.redis, arguments.torch.rdzv_endpoint)
    if url != effective.settings.redis.url:
        flags = arguments.flags | {"redis.url": url}
        effective = configuration.load(arguments.policy, arguments.sets, flags)
    checkpoint = effective.settings.checkpoint
    if checkpoint.dir:
        # Ranks may change directory before they save.
        absolute = dataclasses.replace(checkpoint, dir=str(Path(checkpoint.dir).absolute()))
        settings = dataclasses.replace(effective.settings, checkpoint=absolute)
        effective = dataclasses.replace(effective, settings=settings)
    return effective


def name_job(arguments: Arguments, is_alone: bool) -> str:
    """--job, else --rdzv-id, else the script's name; unique where no other node must guess it."""
    if arguments.job:
        if arguments.job != ownership.as_name(arguments.job):
            raise BadInput(f"--job {arguments.job}: use letters, digits and . _ ~ - only")
        return arguments.job
    given = arguments.torch.rdzv_id
    if given != "none" and not arguments.torch.standalone:
        return ownership.as_name(given)
    script = ownership.as_name(Path(arguments.torch.training_script).stem)
    return f"{script[:50]}-{secrets.token_hex(3)}" if is_alone else script


def check_shared(site: Site, arguments: Arguments) -> None:
    """Refuse a job name that is in use with other settings."""
    store = open_store(site.settings.redis, site.job, os.environ)
    try:
        check_settings_shared(
            store,
            site.job,
            {
                "nnodes": arguments.torch.nnodes,
                "spares": arguments.spares,
                "script": Path(arguments.torch.training_script).name,
                "checkpoint.dir": site.settings.checkpoint.dir,
            },
        )
    except StoreUnavailable as error:
        raise BadInput(f"the coordination server went away: {error}") from None
    finally:
        store.close()


@contextlib.contextmanager
def sidecar(site: Site, effective: Effective, observes: bool) -> Iterator[None]:
    """A sidecar for this node: one that is there already, else one of our own."""
    if has_own_sidecar(site.owned.places):
        logger.info("a sidecar for node %s runs already: it is used", site.owned.node)
        yield
        return
    arguments = sidecar_arguments(site, effective, observes)
    process = SidecarProcess(arguments, site.owned.places.sidecar_log)
    process.start()
    try:
        yield
    finally:
        process.stop()


def sidecar_arguments(site: Site, effective: Effective, observes: bool) -> list[str]:
    """The sidecar's command line; where secrets lie may be on it, secrets may not."""
    origins = dict(effective.origins)
    settings = site.settings
    if site.server.own is not None:
        origins |= dict.fromkeys(("redis.url", "redis.password_file"), COMMAND_LINE)
        origins["redis.user"] = configuration.DEFAULT
    if observes:
        watching = dataclasses.replace(settings.sidecar, mode="observe")
        settings = dataclasses.replace(settings, sidecar=watching)
        origins["sidecar.mode"] = COMMAND_LINE
    told = dataclasses.replace(effective, settings=settings, origins=origins)
    who = ["--job", site.job, "--node", site.owned.node, "--launcher-pid", str(os.getpid())]
    return [*who, *configuration.arguments(told)]


def run_agent(site: Site, arguments: Arguments, nodes: tuple[int, int]) -> None:
    """Run torch's agent: ours on the leader's plan, or torch's on torch's rendezvous."""
    standby = None
    if arguments.uses_own_rendezvous:
        rendezvous = make_rendezvous(site, arguments, nodes)
        rendezvous.watch.start()
        standby = Standby() if arguments.uses_standby else None
        agent: LocalElasticAgent = HoldfastAgent(
            site.launch.make_spec(rendezvous),
            rendezvous,
            site.context,
            standby,
            **supported(LocalElasticAgent, **site.launch.agent_options()),
        )
    else:
        os.environ.setdefault(SHARED_STORE_OFF, "1")
        rendezvous = get_rendezvous_handler(stock_parameters(site.launch))
        agent = StockAgent(
            site.launch.make_spec(rendezvous),
            site.context,
            **supported(LocalElasticAgent, **site.launch.agent_options()),
        )
    try:
        follow(agent, rendezvous, site.launch)
    finally:
        if standby is not None:
            standby.close()


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


def make_rendezvous(site: Site, arguments: Arguments, nodes: tuple[int, int]) -> HoldfastRendezvous:
    """Our rendezvous handler for this node; nothing is started yet."""
    settings, given = site.settings, arguments.torch
    conf = site.launch.config.rdzv_configs
    report = AgentReport(
        node=site.owned.node,
        incarnation=new_incarnation(),
        state="joining",
        attempt=-1,
        beat=0,
        slots=site.launch.config.nproc_per_node,
        address=own_address(given.local_addr, settings.redis.url),
        min_nodes=nodes[0],
        max_nodes=nodes[1],
        spares=arguments.spares,
        max_restarts=None if given.max_restarts is None else int(given.max_restarts),
        last_call_s=float(conf.get("last_call_timeout", LAST_CALL_S)),
        version=__version__,
        torch_version=torch.__version__,
        machine=read_machine(),
        role=given.role,
        pid=os.getpid(),
    )
    is_alone = nodes[1] == 1
    return HoldfastRendezvous(
        reporter=Reporter(
            open_store(settings.redis, site.job, os.environ), report, settings.sidecar.heartbeat_s
        ),
        watch=PlanWatch(
            open_store(settings.redis, site.job, os.environ, hears_reports=False),
            settings.sidecar.heartbeat_s,
        ),
        run_id=site.job,
        join_timeout_s=float(conf.get("join_timeout", settings.policy.join_timeout_s)),
        # On one node --master-addr and --master-port are what the ranks are given, as in torchrun.
        master_address=given.master_addr if is_alone else "",
        master_port=int(given.master_port or 0),
    )
