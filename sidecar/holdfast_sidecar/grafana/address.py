"""Where a Grafana is, from the URL that a person gave. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast_sidecar.config.settings import BadInput


@dataclass(frozen=True)
class Address:
    """A Grafana's, without any secret."""

    scheme: str
    host: str
    port: int | None
    prefix: str
    """Below which it serves, with a slash at its end; empty: at the top."""

    @property
    def url(self) -> str:
        """For people."""
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}/{self.prefix}".rstrip("/")


def parse_address(url: str) -> Address:
    """BadInput says what is wrong with it, without repeating a password that it carries."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadInput("--grafana is no address: give one such as https://grafana:3000") from None
    if parts.username or parts.password:
        raise BadInput(
            "a user and password in --grafana are visible to everyone: give a service account's "
            "token in --token-file or HOLDFAST_GRAFANA_TOKEN"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise BadInput(
            f"--grafana {url!r} is no address: give one such as https://grafana:3000, with the "
            "sub-path if it has one"
        )
    path = parts.path.strip("/")
    shown = f"[{host}]" if ":" in host else host
    return Address(parts.scheme, shown, port, f"{path}/" if path else "")
