"""User and password of the coordination server: where they come from, and that they stay there.

A secret comes from a file or the environment. It is read anew for each connection, so that a
changed file is a rotated password, and it never becomes part of a client's settings or repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from redis.credentials import CredentialProvider

from holdfast import environment as names
from holdfast_sidecar.config.addresses import Address, describe
from holdfast_sidecar.config.settings import BadInput, RedisSettings


class Credentials(CredentialProvider):
    """What a connection authenticates with. `password_file` is preferred to `password`."""

    def __init__(self, user: str, password: str, password_file: Path | None) -> None:
        self._user = user
        self._password = password
        self._password_file = password_file

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """(password,) or (user, password), as AUTH wants them."""
        password = self._password
        if self._password_file is not None:
            password = self._password_file.read_text().rstrip("\r\n")
        return (self._user, password) if self._user else (password,)


def find_credentials(
    settings: RedisSettings, address: Address, environment: Mapping[str, str]
) -> Credentials | None:
    """Settings first, then the environment, then the URL; None when nothing asks for a password."""
    user = settings.user or environment.get(names.REDIS_USER, "") or address.user
    file_name = settings.password_file
    password = ""
    if not file_name:
        password = environment.get(names.REDIS_PASSWORD, "")
        file_name = "" if password else environment.get(names.REDIS_PASSWORD_FILE, "")
    if file_name:
        return Credentials(user, "", _checked(Path(file_name).expanduser()))
    password = password or address.password
    if not password:
        if user:
            raise BadInput(
                f"user {user!r} but no password for Redis: "
                f"give --redis-password-file or set {names.REDIS_PASSWORD}"
            )
        return None
    return Credentials(user, password, None)


def refuse_visible_password(
    settings: RedisSettings, address: Address, environment: Mapping[str, str]
) -> None:
    """A password in a URL is accepted from the environment only: `ps` shows everything else."""
    is_from_environment = settings.url in ("", environment.get(names.REDIS_URL))
    if address.password and not is_from_environment:
        raise BadInput(
            f"a password in the Redis URL is visible to everyone ({describe(settings.url)}): "
            f"put it into a file (--redis-password-file) or into {names.REDIS_PASSWORD}"
        )


def _checked(path: Path) -> Path:
    try:
        content = path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise BadInput(f"cannot read the Redis password file {path}: {reason}") from None
    if not content:
        raise BadInput(f"the Redis password file {path} is empty: write the password into it")
    return path
