"""Storage, network and devices that are away for a while: waited for, and no bug of the script."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.config.settings import PolicySettings, Settings
from holdfast_sidecar.policy import budget
from holdfast_sidecar.policy.blame import Blame
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.requeue import going_on
from holdfast_sidecar.policy.restart import find_way
from holdfast_sidecar.policy.signature import is_of_surroundings, sign
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident, Member, Plan, Requeues
from holdfast_sidecar.records.reports import OUTPUT_UNREAD, AgentReport, Exit
from holdfast_sidecar.store.memory_store import MemoryStore
from holdfast_sidecar.store.protocol import CURRENT, Section

QUICK = PolicySettings(surroundings_backoff_s=0.2, backoff_s=0.1, backoff_limit_s=0.1)


def ended(message: str, step: int = 5000, code: int = 1) -> Exit:
    return Exit(0, 0, 1, code, 0.0, 0, message, step)


ALWAYS = [
    "HTTPError: 503 Server Error: Service Unavailable for url: https://a/b",
    "HTTPError: HTTP Error 502: Bad Gateway",
    "ClientError: An error occurred (SlowDown) when calling the PutObject operation",
    "ClientError: An error occurred (500) when calling the HeadObject operation",
    "OSError: [Errno 116] Stale file handle",
    "OSError: [Errno 122] Disk quota exceeded",
    "OSError: We couldn't connect to the Hub to load this file, and couldn't find it in the cache",
    "OSError: [Errno 5] Input/output error",
    "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
    "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "ConnectionError: Temporary failure in name resolution",
    "gaierror: [Errno -3] Temporary failure in name resolution",
    "ReadTimeout: HTTPSConnectionPool(host='a', port=443): Read timed out.",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "HTTPStatusError: Server error '504 Gateway Time-out' for url 'https://a/b'",
    "HTTPError: HTTP Error 408: Request Timeout",
    "HfHubHTTPError: 504 Server Error: Gateway Timeout for url: https://a/b",
    "ClientError: An error occurred (RequestTimeout) when calling the PutObject operation",
    "ReadError: ",
    "RemoteProtocolError: Server disconnected without sending a response.",
    "ProxyError: HTTPSConnectionPool(host='a', port=443): Max retries exceeded",
    "SSLEOFError: EOF occurred in violation of protocol (_ssl.c:1000)",
    "ClientOSError: [Errno 104] Connection reset by peer",
    "ClientPayloadError: Response payload is not completed",
    "ServerTimeoutError: Timeout on reading data from socket",
    "LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub",
    "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly",
    "OSError: Caught OSError in DataLoader worker process 0. Original Traceback",
    "ImportError: libx.so: cannot open shared object file: Stale file handle",
]

AT_FIRST_OF_THE_SCRIPT = [
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
    "PermissionError: [Errno 13] Permission denied: '/data'",
    "OSError: a/b is not a local folder and is not a valid model identifier listed on the Hub",
    "OSError: Error no file named pytorch_model.bin found in directory /models/a",
    "OSError: a/b does not appear to have a file named config.json",
    "OSError: libx.so.1: cannot open shared object file: No such file or directory",
    "OSError: Unable to open file (unable to open file: name = '/data/a.h5', errno = 2, flags = 0)",
    "LocalEntryNotFoundError: Cannot find the file and outgoing traffic has been disabled.",
]

OF_THE_SCRIPT = [
    "ValueError: the answer was 503 Server Error",
    "KeyError: 'x'",
    "AssertionError",
    "ReadError: file could not be opened successfully",
    "ImportError: cannot import name 'a' from 'b'",
    "ModuleNotFoundError: No module named 'b'",
    "HTTPError: 404 Client Error: Not Found for url: https://a/b",
    "RuntimeError: shapes do not match",
    "RuntimeError: The size of tensor a (512) must match the size of tensor b (8) at dimension 0",
    "RuntimeError: Expected a batch of (429) samples",
    "AssertionError: batch (512) != 8",
    "AssertionError: status code 503",
    "",
]


@pytest.mark.parametrize("message", ALWAYS)
@pytest.mark.parametrize("had_stepped", [True, False])
def test_what_passes_is_no_bug_however_often_it_comes(message: str, had_stepped: bool) -> None:
    assert is_of_surroundings(ended(message), had_stepped)
    assert sign(Blame("n", 0, ended(message), 0.9), had_stepped) == ""


@pytest.mark.parametrize("message", AT_FIRST_OF_THE_SCRIPT)
def test_before_the_first_step_a_path_rights_and_memory_are_the_script_s(message: str) -> None:
    assert is_of_surroundings(ended(message), had_stepped=True)
    assert not is_of_surroundings(ended(message, step=0), had_stepped=False)
    assert sign(Blame("n", 0, ended(message, step=0), 0.9), had_stepped=False)


@pytest.mark.parametrize("message", OF_THE_SCRIPT)
@pytest.mark.parametrize("had_stepped", [True, False])
def test_what_the_script_did_is_its_own(message: str, had_stepped: bool) -> None:
    assert not is_of_surroundings(ended(message), had_stepped)
    assert sign(Blame("n", 0, ended(message), 0.9), had_stepped)


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: [pair.cc:547] gloo: Connection closed by peer",
        "DistBackendError: NCCL error: remote process exited or network error",
        "TimeoutError: the client of the TCPStore has timed out",
    ],
)
def test_who_lost_a_peer_is_not_waited_for(message: str) -> None:
    assert not is_of_surroundings(ended(message), had_stepped=True)


def of_storage(attempt: int, step: int = 500, **changes: object) -> Incident:
    facts: dict[str, object] = {
        "decided": "restart",
        "step_reached": step,
        "is_of_surroundings": True,
        "had_stepped": True,
        "evidence": ["rank 0: OSError: [Errno 116] Stale file handle"],
    }
    return Incident(f"i{attempt}", attempt, "crash", **(facts | changes))  # type: ignore[arg-type]


def verdict(*row: Incident, now: float = 0.0) -> budget.Restart | budget.Stop:
    return budget.decide(row[-1], row[:-1], len(row), -1, PolicySettings(), now)


@pytest.mark.parametrize(
    ("asked", "code"), [("", budget.EXIT_FAILED), ("SIGTERM", budget.EXIT_REQUEUE)]
)
def test_who_has_nobody_left_to_print_to_is_not_started_again(asked: str, code: int) -> None:
    unread = ended(OUTPUT_UNREAD)
    assert not is_of_surroundings(unread, had_stepped=True)
    signature = sign(Blame("n", 0, unread, 0.9))
    once = of_storage(0, is_of_surroundings=False, signature=signature)
    plan = Plan(0, 1, "ended", [Member("a", "x", 0, 0, 1)], 1)
    agents = {"a": AgentReport("a", "x", "failed", 0, 1, 1, "", 1, 1, preempted_by=asked)}
    stopped = find_way(Cluster(plan=plan, agents=agents), plan, once, Settings(), -1, 0.0)
    assert isinstance(stopped, budget.Stop)
    assert stopped.exit_code == code
    assert OUTPUT_UNREAD in stopped.message


def test_the_pauses_grow_until_a_step_is_made_and_then_begin_anew() -> None:
    row = [of_storage(attempt) for attempt in range(6)]
    pauses = []
    for length in range(1, 7):
        judged = verdict(*row[:length])
        assert isinstance(judged, budget.Restart)
        pauses.append(judged.pause_s)
    assert pauses == [10, 30, 120, 300, 300, 300]
    further = verdict(*row, of_storage(7, step=501))
    assert isinstance(further, budget.Restart)
    assert further.pause_s == 10


def test_what_stays_away_ends_the_job_to_be_started_again_and_a_bug_ends_it_for_good() -> None:
    limit = PolicySettings().stepless_limit
    away = verdict(*(of_storage(attempt) for attempt in range(limit)))
    assert isinstance(away, budget.Stop)
    assert away.exit_code == budget.EXIT_REQUEUE
    bug = verdict(*(of_storage(a, is_of_surroundings=False) for a in range(limit)))
    assert isinstance(bug, budget.Stop)
    assert bug.exit_code == budget.EXIT_DO_NOT_REQUEUE


def test_a_job_that_never_makes_a_step_is_stopped_however_seldom_it_fails() -> None:
    limit, pause_s = PolicySettings().stepless_limit, 3600.0
    row = [
        Incident(f"i{n}", n, "stall", decided="restart", detected_unix_s=n * pause_s)
        for n in range(limit)
    ]
    assert isinstance(verdict(*row[:-1], now=(limit - 1) * pause_s), budget.Restart)
    judged = verdict(*row, now=limit * pause_s)
    assert isinstance(judged, budget.Stop)
    assert judged.exit_code == budget.EXIT_DO_NOT_REQUEUE


def test_a_job_whose_steps_nobody_sees_is_not_stopped_while_its_attempts_live_long() -> None:
    row = [
        Incident(
            f"i{n}", n, "crash", decided="restart", detected_unix_s=9e3 * n, recovered_unix_s=1
        )
        for n in range(40)
    ]
    assert isinstance(verdict(*row, now=9e3 * 40), budget.Restart)


def made_again(attempt: int, step: int, **changes: object) -> Incident:
    """Ended at this step after all that the attempt made, from step 0 unless told otherwise."""
    facts: dict[str, object] = {
        "decided": "restart",
        "detected_unix_s": 9e3 * attempt,
        "recovered_unix_s": 9e3 * attempt + 60,
        "step_reached": step,
    }
    facts |= {"identifier": f"i{attempt}", "attempt": attempt, "cause": "hang"}
    return Incident(**(facts | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("resumed", "goes_on"), [(0, True), (5, False)])
def test_attempts_that_begin_at_step_0_and_make_steps_are_no_tries_in_vain(
    resumed: int, goes_on: bool
) -> None:
    """A script that Holdfast does not resume makes its steps again, and may resume by itself."""
    row = [made_again(n, 11 + n % 3, step_resumed=resumed) for n in range(40)]
    assert isinstance(verdict(*row, now=9e3 * 40), budget.Restart) == goes_on


@pytest.mark.parametrize(
    ("is_of_surroundings", "code"),
    [(True, budget.EXIT_REQUEUE), (False, budget.EXIT_DO_NOT_REQUEUE)],
)
def test_the_same_end_at_the_same_step_of_attempts_from_0_is_a_try_in_vain(
    is_of_surroundings: bool, code: int
) -> None:
    limit = PolicySettings().stepless_limit
    row = [made_again(n, 37, is_of_surroundings=is_of_surroundings) for n in range(limit)]
    assert isinstance(verdict(*row[:-1], now=9e3 * limit), budget.Restart)
    judged = verdict(*row, now=9e3 * limit)
    assert isinstance(judged, budget.Stop)
    assert judged.exit_code == code


def test_another_cause_at_the_same_step_of_attempts_from_0_begins_the_count_anew() -> None:
    row = [made_again(n, 37, cause=f"cause {n % 2}") for n in range(40)]
    assert isinstance(verdict(*row, now=9e3 * 40), budget.Restart)


def test_the_pauses_grow_over_attempts_from_0_that_come_no_further() -> None:
    row = [made_again(n, step, is_of_surroundings=True) for n, step in enumerate([9, 8, 7, 8, 7])]
    judged = [verdict(*row[: length + 1]) for length in range(len(row))]
    assert [one.pause_s for one in judged if isinstance(one, budget.Restart)] == [
        10,
        30,
        120,
        300,
        300,
    ]
    further = verdict(*row, made_again(5, 10, is_of_surroundings=True))
    assert isinstance(further, budget.Restart)
    assert further.pause_s == 10


def crash(job: SimulatedJob, attempt: int, message: str, step: int) -> None:
    """Rank 0 fails with these words as soon as it has come to this step."""
    node = job.nodes["n0"]
    job.run_until(lambda: node.attempt == attempt and node.state == "running", 90.0)
    while node.step < step:
        job.tick()
    node.crash(0, 1, job.now, message)


def test_an_outage_of_storage_is_outlived(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, policy=QUICK)
    for attempt in range(5):
        crash(job, attempt, "OSError: [Errno 116] Stale file handle", step=20)
    job.run_until(lambda: job.is_running(5), 90.0)
    assert {incident.signature for incident in job.incidents()} == {""}
    assert all(incident.is_of_surroundings for incident in job.incidents())


def test_the_script_s_own_error_at_the_same_step_still_stops_it(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, policy=QUICK)
    for attempt in range(2):
        crash(job, attempt, "KeyError: 'x'", step=20)
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped")
    assert job.plan is not None
    assert job.plan.exit_code == budget.EXIT_DO_NOT_REQUEUE


def test_a_wrong_path_stops_a_job_that_never_made_a_step(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, policy=QUICK)
    job._train = lambda: None  # type: ignore[method-assign]
    for attempt in range(2):
        crash(job, attempt, "FileNotFoundError: [Errno 2] No such file: '/data'", step=0)
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped")
    assert job.plan is not None
    assert job.plan.exit_code == budget.EXIT_DO_NOT_REQUEUE


def test_a_path_that_is_gone_once_steps_were_made_is_waited_for(tmp_path: Path) -> None:
    """The attempt after it comes to no step: it is the run that has made some."""
    job = SimulatedJob(tmp_path, policy=QUICK)
    crash(job, 0, "FileNotFoundError: [Errno 2] No such file: '/data'", step=20)
    train, job._train = job._train, lambda: None  # type: ignore[method-assign]
    for attempt in range(1, 4):
        crash(job, attempt, "FileNotFoundError: [Errno 2] No such file: '/data'", step=0)
    job._train = train  # type: ignore[method-assign]
    job.run_until(lambda: job.is_running(4), 90.0)


def start_anew(job: SimulatedJob, launch: str = "slurm-7", command: str = "") -> None:
    """The same nodes, as their scheduler starts them again."""
    for name in list(job.nodes):
        node = job.add(name)
        node.launch, node.launch_command = launch, command


def test_what_ended_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, policy=QUICK)
    crash(job, 0, "KeyError: 'x'", step=20)
    job.run_until(lambda: job.is_running(1))
    job.ask("stop", "stop")
    job.run_until(lambda: all(node.exit_code is not None for node in job.nodes.values()))
    start_anew(job)
    crash(job, 2, "KeyError: 'x'", step=20)
    job.run_until(lambda: job.is_running(3))


def give_up(job: SimulatedJob) -> int:
    """One run that storage ends; its exit code."""
    first = -1 if job.plan is None else job.plan.attempt
    for number in range(1, job.settings.policy.stepless_limit + 1):
        crash(job, first + number, "OSError: [Errno 116] Stale file handle", step=0)
    job.run_until(lambda: all(node.exit_code is not None for node in job.nodes.values()), 90.0)
    (code,) = {node.exit_code for node in job.nodes.values()}
    assert code is not None
    return code


def test_a_job_asks_to_be_started_again_so_often_without_a_step_and_then_no_more(
    tmp_path: Path,
) -> None:
    policy = PolicySettings(surroundings_backoff_s=0.1, stepless_limit=2, requeue_limit=2)
    job = SimulatedJob(tmp_path, policy=policy)
    job._train = lambda: None  # type: ignore[method-assign]
    start_anew(job)
    codes = []
    for _ in range(3):
        codes.append(give_up(job))
        start_anew(job)
    assert codes == [budget.EXIT_REQUEUE, budget.EXIT_REQUEUE, budget.EXIT_DO_NOT_REQUEUE]
    assert give_up(job) == budget.EXIT_REQUEUE, "its end for good closed the count"


def test_another_launch_and_a_new_step_begin_the_count_anew(tmp_path: Path) -> None:
    policy = PolicySettings(surroundings_backoff_s=0.1, stepless_limit=2, requeue_limit=1)
    job = SimulatedJob(tmp_path, policy=policy)
    train = job._train
    job._train = lambda: None  # type: ignore[method-assign]
    start_anew(job)
    assert give_up(job) == budget.EXIT_REQUEUE
    start_anew(job, "slurm-8")
    assert give_up(job) == budget.EXIT_REQUEUE
    start_anew(job, "slurm-8")
    job._train = train  # type: ignore[method-assign]
    assert job.plan is not None
    crash(job, job.plan.attempt + 1, "OSError: [Errno 116] Stale file handle", step=20)
    job._train = lambda: None  # type: ignore[method-assign]
    assert job.plan is not None
    crash(job, job.plan.attempt + 1, "OSError: [Errno 116] Stale file handle", step=0)
    job.run_until(lambda: all(node.exit_code is not None for node in job.nodes.values()), 90.0)
    assert {node.exit_code for node in job.nodes.values()} == {budget.EXIT_REQUEUE}


@pytest.mark.parametrize(
    ("launch", "command", "count"),
    [("user ann", "x", 2), ("user ann", "y", 1), ("slurm-7", "y", 2), ("user bob", "x", 1)],
)
def test_of_a_users_launches_only_one_with_the_same_command_is_counted_on(
    launch: str, command: str, count: int, tmp_path: Path
) -> None:
    policy = PolicySettings(surroundings_backoff_s=0.1, stepless_limit=2, requeue_limit=5)
    job = SimulatedJob(tmp_path, policy=policy)
    job._train = lambda: None  # type: ignore[method-assign]
    start_anew(job, launch.replace("bob", "ann"), "x")
    assert give_up(job) == budget.EXIT_REQUEUE
    start_anew(job, launch, command)
    assert give_up(job) == budget.EXIT_REQUEUE
    assert job.plan is not None
    assert job.plan.requeues.count == count


@pytest.mark.parametrize(
    ("state", "code", "launch", "goes_on"),
    [
        ("stopped", 75, "user ann", True),
        ("running", 0, "user ann", False),
        ("running", 0, "slurm-7", True),
        ("stopped", 65, "slurm-7", False),
        ("done", 0, "user ann", False),
    ],
)
def test_a_killed_run_of_a_user_leaves_nothing_to_the_next_one(
    state: str, code: int, launch: str, goes_on: bool
) -> None:
    left = Requeues(2, 40, launch, "x", has_stepped=True)
    plan = Plan(3, 1, state, exit_code=code, requeues=left)
    assert going_on(plan) == (left if goes_on else Requeues())


def preempted(job: SimulatedJob) -> Plan:
    """The end of a run that is wanted back before its first new step."""
    assert job.plan is not None
    attempt = job.plan.attempt + 1
    job.run_until(lambda: job.plan is not None and job.plan.attempt == attempt)
    job.run_until(lambda: all(node.state == "running" for node in job.nodes.values()))
    for node in job.nodes.values():
        node.preempt(job.now, 27.0)
    job.run_until(lambda: all(node.exit_code is not None for node in job.nodes.values()))
    assert job.plan is not None
    return job.plan


def test_who_is_preempted_before_its_first_new_step_did_not_try_in_vain(tmp_path: Path) -> None:
    policy = PolicySettings(surroundings_backoff_s=0.1, stepless_limit=2, requeue_limit=2)
    job = SimulatedJob(tmp_path, policy=policy)
    job._train = lambda: None  # type: ignore[method-assign]
    start_anew(job)
    assert give_up(job) == budget.EXIT_REQUEUE
    for _ in range(4):
        start_anew(job)
        ended = preempted(job)
        assert (ended.cause, ended.exit_code) == ("preempted", budget.EXIT_REQUEUE)
        assert ended.requeues.count == 1, "what failed before still counts"
    codes = []
    for _ in range(2):
        start_anew(job)
        codes.append(give_up(job))
    assert codes == [budget.EXIT_REQUEUE, budget.EXIT_DO_NOT_REQUEUE]


@pytest.mark.parametrize("loses", ["all", "the end"])
def test_an_end_that_the_store_lost_and_gets_back_is_counted_once(
    tmp_path: Path, loses: str
) -> None:
    policy = PolicySettings(surroundings_backoff_s=0.1, stepless_limit=2, requeue_limit=1)
    job = SimulatedJob(tmp_path, policy=policy)
    job._train = lambda: None  # type: ignore[method-assign]
    start_anew(job)
    assert give_up(job) == budget.EXIT_REQUEUE
    ended = job.plan
    assert ended is not None
    assert ended.requeues.count == 1
    if loses == "all":
        job.server.empty()
    else:
        before = dataclasses.replace(
            ended, state="ended", exit_code=0, requeues=Requeues(launch="slurm-7")
        )
        lose_the_end(job, before)
    job.run(5)
    assert job.plan == ended


def lose_the_end(job: SimulatedJob, before: Plan) -> None:
    """As after a failover: the newest plan is the one before the end, under the same lease."""
    store = MemoryStore(job.server)
    view = store.read()
    text = view.section(Section.PLAN)[CURRENT]
    assert store.order(view.lease, Section.PLAN, CURRENT, encode(before), text)


def is_away(job: SimulatedJob) -> None:
    """Storage is not mounted in the two first attempts of a run that is started now."""
    start_anew(job)
    job._train = lambda: None  # type: ignore[method-assign]
    assert job.plan is not None
    first = job.plan.attempt + 1
    for attempt in (first, first + 1):
        crash(job, attempt, "FileNotFoundError: [Errno 2] No such file: '/data'", step=0)


def test_a_requeued_launch_that_had_trained_waits_for_what_is_not_mounted(tmp_path: Path) -> None:
    policy = PolicySettings(surroundings_backoff_s=0.1, stepless_limit=3, requeue_limit=9)
    job = SimulatedJob(tmp_path, policy=policy)
    train = job._train
    start_anew(job)
    crash(job, 0, "OSError: [Errno 116] Stale file handle", step=20)
    job._train = lambda: None  # type: ignore[method-assign]
    for attempt in (1, 2):
        crash(job, attempt, "OSError: [Errno 116] Stale file handle", step=0)
    job.run_until(lambda: all(node.exit_code is not None for node in job.nodes.values()), 90.0)
    assert {node.exit_code for node in job.nodes.values()} == {budget.EXIT_REQUEUE}
    is_away(job)
    assert job.plan is not None
    job._train = train  # type: ignore[method-assign]
    attempt = job.plan.attempt + 1
    job.run_until(lambda: job.is_running(attempt), 90.0)


def test_a_launch_that_never_trained_does_not_wait_for_a_wrong_path(tmp_path: Path) -> None:
    policy = PolicySettings(surroundings_backoff_s=0.1, stepless_limit=3, requeue_limit=9)
    job = SimulatedJob(tmp_path, policy=policy)
    job._train = lambda: None  # type: ignore[method-assign]
    start_anew(job)
    assert give_up(job) == budget.EXIT_REQUEUE
    is_away(job)
    job.run_until(lambda: all(node.exit_code is not None for node in job.nodes.values()), 90.0)
    assert {node.exit_code for node in job.nodes.values()} == {budget.EXIT_DO_NOT_REQUEUE}
