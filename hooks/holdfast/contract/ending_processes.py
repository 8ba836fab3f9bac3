"""Signals processes that a permit holds for. The only module that calls what signals."""

from __future__ import annotations

import os
import signal

from holdfast.contract.permit import Child, Group, Handle, Licence, NotPermitted, Permit


def signal_child(permit: Permit, number: int = signal.SIGKILL) -> None:
    """Signal a child. Raises NotPermitted; ProcessLookupError where it is gone, unless it was
    permitted as a Popen."""
    child = permit.subject
    if permit.licence is not Licence.OWN_CHILD or not isinstance(child, Child):
        raise _refused(permit)
    if child.process is not None:
        child.process.send_signal(number)
    else:
        os.kill(child.pid, number)


def signal_group(permit: Permit, number: int = signal.SIGKILL) -> None:
    """Signal all of a group. Raises NotPermitted, ProcessLookupError, PermissionError."""
    group = permit.subject
    if permit.licence is not Licence.OWN_CHILD or not isinstance(group, Group):
        raise _refused(permit)
    os.killpg(group.pid, number)


def signal_handle(permit: Permit) -> None:
    """Send exactly the process that is held open the signal that was permitted. Raises
    NotPermitted, ProcessLookupError, PermissionError."""
    handle = permit.subject
    if permit.licence is not Licence.OWN_RANK or not isinstance(handle, Handle):
        raise _refused(permit)
    signal.pidfd_send_signal(handle.pidfd, handle.number)


def _refused(permit: Permit) -> NotPermitted:
    return NotPermitted(f"nothing is signalled so on {permit.licence.value}: {permit.subject}")
