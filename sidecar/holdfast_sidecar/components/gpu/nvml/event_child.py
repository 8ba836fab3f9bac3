"""The child that waits for the driver's events, and hands each over the moment it comes.

The standard library alone, and little of it: it lives as long as the sidecar and mostly sleeps.
"""

from __future__ import annotations

import ctypes
import os
import time
from ctypes import c_void_p

from holdfast_sidecar.components.gpu.nvml import child_io
from holdfast_sidecar.components.gpu.nvml.child_io import OTHERS, WAIT_MS, FrameWriter, SharedStatus

# The ten calls of NVML's that waiting for events needs, bound here.
#
# Not through nvidia-ml-py: a child that only waits would hold five more MiB of it for ever, and the
# sidecar with all its children may have 64. These calls and structs are as old as driver 418.

LIBRARY = "libnvidia-ml.so.1"

NOT_SUPPORTED = 3
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13


class NvmlError(Exception):
    """A call's return code (`nvmlReturn_t`), the call, and what the library calls the code."""

    def __init__(self, code: int, call: str, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.code = code


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )

    @property
    def address(self) -> str:
        """As in sysfs: `0000:17:00.0`."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"


class EventData(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class EventLibrary:
    """The library, loaded. Every method raises NvmlError."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise NvmlError(LIBRARY_NOT_FOUND, LIBRARY, "not found") from None

    def start(self) -> None:
        """Connect to the driver; seconds, where no one else has."""
        self._call("nvmlInitWithFlags", ctypes.c_uint(0))

    def count(self) -> int:
        """GPUs that the driver lists."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return count.value

    def device(self, index: int) -> ctypes.c_void_p:
        """The handle of one of them."""
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def pci(self, device: ctypes.c_void_p) -> str:
        """Its PCI address."""
        info = PciInfo()
        self._call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(info))
        return info.address

    def supported(self, device: ctypes.c_void_p) -> int:
        """Kinds of events that it can tell, as a mask."""
        mask = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetSupportedEventTypes", device, ctypes.byref(mask))
        return mask.value

    def make_set(self) -> ctypes.c_void_p:
        """An empty set of events."""
        events = ctypes.c_void_p()
        self._call("nvmlEventSetCreate", ctypes.byref(events))
        return events

    def register(self, device: ctypes.c_void_p, kinds: int, events: ctypes.c_void_p) -> None:
        """From now on the set has this device's events; those from before are not in it."""
        self._call("nvmlDeviceRegisterEvents", device, ctypes.c_ulonglong(kinds), events)

    def wait(self, events: ctypes.c_void_p, timeout_ms: int) -> EventData | None:
        """The next event; None when there was none in this time."""
        data = EventData()
        try:
            self._call("nvmlEventSetWait_v2", events, ctypes.byref(data), ctypes.c_uint(timeout_ms))
        except NvmlError as error:
            if error.code == TIMEOUT:
                return None
            raise
        return data

    def free(self, events: ctypes.c_void_p) -> None:
        """Let the set go."""
        self._call("nvmlEventSetFree", events)

    def _call(self, name: str, *arguments: object) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError(FUNCTION_NOT_FOUND, name, "the driver has no such call") from None
        code = int(function(*arguments))
        if code:
            raise NvmlError(code, name, self._text(code))

    def _text(self, code: int) -> str:
        try:
            function = self._library.nvmlErrorString
        except AttributeError:
            return str(code)
        function.restype = ctypes.c_char_p
        return (function(ctypes.c_int(code)) or b"").decode(errors="replace")


XID = 0x8
"""nvmlEventTypeXidCriticalError."""


WANTED = XID | sum(OTHERS)


PAUSE_S = 1.0
"""Before the set is made anew: a GPU that fell off the bus may fail every wait at once."""

ABSENT = (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED)


class EventSet:
    """Makes a set of all GPUs that answer, and waits on it."""

    def __init__(self, library: EventLibrary, board: SharedStatus, say: FrameWriter) -> None:
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
            self._mouth.say(child_io.EVENT, f"{at_unix_s!r} {kind} {event.data} {pci}")

    def _report(self, standing: str) -> None:
        if standing != self._reported:
            self._mouth.say(child_io.LISTENING, standing)
            self._reported = standing


def _unable(call: str, why: str) -> NvmlError:
    return NvmlError(NOT_SUPPORTED, call, why)


def run(board: SharedStatus, say: FrameWriter, parent: int) -> None:
    """Wait while the parent lives; ends where there is no driver, or it tells no events."""
    board.about_to("nvmlInit")
    try:
        library = EventLibrary()
        library.start()
        listener = EventSet(library, board, say)
        while os.getppid() == parent:
            listener.listen(parent)
            time.sleep(PAUSE_S)
    except NvmlError as error:
        say.say(child_io.ABSENT if error.code in ABSENT else child_io.FAILED, str(error))
