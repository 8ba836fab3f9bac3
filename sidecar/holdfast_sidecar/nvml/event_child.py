"""The child that waits for the driver's events, and hands each over the moment it comes.

The standard library alone, and little of it: it lives as long as the sidecar and mostly sleeps.
"""

from __future__ import annotations

import os
import time
from ctypes import c_void_p

from holdfast_sidecar.nvml import event_library, mouth
from holdfast_sidecar.nvml.board import Board
from holdfast_sidecar.nvml.event_library import EventLibrary, NvmlError
from holdfast_sidecar.nvml.mouth import Mouth

XID = 0x8
"""nvmlEventTypeXidCriticalError."""

OTHERS = {
    0x200: "single_bit_ecc_storm",
    0x400: "dram_retirement",
    0x800: "dram_retirement_failure",
    0x1000: "poison_non_fatal",
    0x2000: "poison_fatal",
    0x4000: "gpu_unavailable",
    0x8000: "recovery_action",
}
"""Of nvml.h 13; a driver that does not know one of them does not call it supported."""

WANTED = XID | sum(OTHERS)

WAIT_MS = 500
"""One wait. A driver that answers is heard of this often, so that one that does not is known."""

PAUSE_S = 1.0
"""Before the set is made anew: a GPU that fell off the bus may fail every wait at once."""

ABSENT = (event_library.LIBRARY_NOT_FOUND, event_library.DRIVER_NOT_LOADED)


class Listener:
    """Makes a set of all GPUs that answer, and waits on it."""

    def __init__(self, library: EventLibrary, board: Board, say: Mouth) -> None:
        self._library = library
        self._board = board
        self._mouth = say
        self._reported = ""
        self._deaf: NvmlError | None = None
        """Why one of the GPUs is not in the set."""

    def listen(self, parent: int) -> None:
        """Until a wait fails or the parent is gone. Raises NvmlError when no GPU tells events."""
        self._board.about_to("nvmlEventSetCreate")
        events = self._library.make_set()
        addresses = self._register(events)
        if not addresses:
            raise self._deaf or _unable("nvmlDeviceGetCount", "no GPU")
        self._report(f"{len(addresses)} {self._deaf or ''}")
        self._board.alive()
        try:
            while os.getppid() == parent:
                self._wait(events, addresses)
        except NvmlError as error:
            self._report(f"{len(addresses)} {error}")
        self._board.about_to("nvmlEventSetFree")
        self._library.free(events)
        self._board.alive()

    def _register(self, events: c_void_p) -> dict[int, str]:
        """Which handle has which PCI address, of those GPUs that are in the set now."""
        self._deaf = None
        addresses: dict[int, str] = {}
        for index in range(self._library.count()):
            self._board.about_to(f"events of GPU {index}")
            try:
                device = self._library.device(index)
                address = self._library.pci(device)
                self._library.register(device, self._kinds(device), events)
            except NvmlError as error:
                self._deaf = error
            else:
                addresses[device.value or 0] = address
        return addresses

    def _kinds(self, device: c_void_p) -> int:
        kinds = self._library.supported(device) & WANTED
        if not kinds:
            raise _unable("nvmlDeviceGetSupportedEventTypes", "none that matter")
        return kinds

    def _wait(self, events: c_void_p, addresses: dict[int, str]) -> None:
        self._board.about_to("nvmlEventSetWait")
        event = self._library.wait(events, WAIT_MS)
        at_unix_s = time.time()
        self._board.alive()
        if event is not None:
            kind = "xid" if event.kind & XID else OTHERS.get(event.kind, hex(event.kind))
            pci = addresses.get(event.device or 0, "-")
            self._mouth.say(mouth.EVENT, f"{at_unix_s!r} {kind} {event.data} {pci}")

    def _report(self, standing: str) -> None:
        if standing != self._reported:
            self._mouth.say(mouth.LISTENING, standing)
            self._reported = standing


def _unable(call: str, why: str) -> NvmlError:
    return NvmlError(event_library.NOT_SUPPORTED, call, why)


def run(board: Board, say: Mouth, parent: int) -> None:
    """Wait while the parent lives; ends where there is no driver, or it tells no events."""
    board.about_to("nvmlInit")
    try:
        library = EventLibrary()
        library.start()
        listener = Listener(library, board, say)
        while os.getppid() == parent:
            listener.listen(parent)
            time.sleep(PAUSE_S)
    except NvmlError as error:
        say.say(mouth.ABSENT if error.code in ABSENT else mouth.FAILED, str(error))
