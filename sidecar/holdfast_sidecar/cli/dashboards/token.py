"""A Grafana's token, from a file or the environment: never on a command line, never printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast import environment as names
from holdfast_sidecar.config.settings import BadInput


def read_token(file_name: str | None, environment: Mapping[str, str]) -> str:
    """The token; BadInput where there is none, or nothing that could be one."""
    if file_name is None:
        token = environment.get(names.GRAFANA_TOKEN, "").strip()
        where = names.GRAFANA_TOKEN
    else:
        token, where = _read(Path(file_name).expanduser()), file_name
    if not token:
        raise BadInput(
            f"no token for Grafana: make a service account there and give its token in "
            f"--token-file or {names.GRAFANA_TOKEN}"
        )
    if not token.isascii() or len(token.split()) > 1:
        raise BadInput(f"what {where} holds is no token: it must be one word, in one line")
    return token


def _read(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise BadInput(f"cannot read the token file {path}: {reason}") from None
    if not token:
        raise BadInput(f"the token file {path} is empty: write the token into it")
    return token
