"""The secrets that this process was given itself: they may stand in its log or in an error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast_sidecar.redaction import known_secrets, secrets_among
from holdfast_sidecar.settings import Settings


def own_secrets(settings: Settings, environment: Mapping[str, str]) -> frozenset[str]:
    """Those in the environment, and in the files that the settings name."""
    files = (
        settings.redis.password_file,
        settings.checkpoint.key_file,
        settings.sidecar.token_file,
    )
    return secrets_among(environment) | known_secrets(_read(name) for name in files if name)


def _read(name: str) -> str:
    try:
        return Path(name).read_text(errors="replace").strip()
    except OSError:
        return ""
