"""How a launch ended, as a person and a scheduler see it: one line, torch's summary, exit code."""

from __future__ import annotations

import contextlib
from pathlib import Path

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.elastic.rendezvous import RendezvousTimeoutError

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.launcher.arguments import Arguments
from holdfast_sidecar.launcher.last_line import say
from holdfast_sidecar.launcher.launch import launch
from holdfast_sidecar.launcher.preemption import Preempted
from holdfast_sidecar.launcher.rendezvous import JobStopped, NotFormedAgain, Unled
from holdfast_sidecar.launcher.signals import handle, heeded
from holdfast_sidecar.policy.budget import EXIT_REQUEUE

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
