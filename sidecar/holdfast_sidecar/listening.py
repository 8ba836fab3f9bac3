"""Where a server of ours is to listen, as settings have it."""

from __future__ import annotations

from holdfast_sidecar.bad_input import BadInput


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port; a bare port binds to loopback."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"can't listen on {listen!r}: write it as HOST:PORT, e.g. 127.0.0.1:9750")
    return host.strip("[]") or "127.0.0.1", int(port)
