"""How sidecars are asked: which certificates are believed, and what token is shown to whom."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.config.addresses import stays_within
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.access import parse_token

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class Access:
    """As files say; empty: no token, the machine's own authorities."""

    token_file: str = ""
    ca_file: str = ""
    """Authorities to believe, in place of the machine's."""
    pinned_file: str = ""
    """The sidecars' own certificate, where no authorities are given: whoever has its key is it,
    under whatever address."""
    only_secured: bool = False
    """Whether the token is shown under TLS alone, on this machine too."""

    def shows_token_to(self, address: str) -> bool:
        """Not where it could be read along: who listens there is said by whoever writes to Redis,
        and the way to other machines is not ours."""
        return address.startswith("https://") or (not self.only_secured and stays_within(address))

    def headers(self, address: str) -> dict[str, str]:
        """What is shown there; read anew each time, as the file may be exchanged."""
        if not self.token_file or not self.shows_token_to(address):
            return {}
        return {"Authorization": f"Bearer {read_token(Path(self.token_file))}"}

    def context(self) -> ssl.SSLContext:
        """For https. BadInput where a file can't be used."""
        path = self.ca_file or self.pinned_file
        try:
            if self.ca_file:
                return ssl.create_default_context(cafile=self.ca_file)
            if self.pinned_file:
                return _pinned(Path(self.pinned_file).read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadInput(f"{path} can't be used as a certificate: {reason}") from None
        return ssl.create_default_context()


def _pinned(text: str) -> ssl.SSLContext:
    """Believes the first certificate in this text, and nobody else. Its name need not be that of
    the address: a certificate for node7 is met at 127.0.0.1, too."""
    first = _PEM.search(text)
    if first is None:
        raise ValueError("it holds none")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=first[0])
    return context


def read_token(path: Path) -> str:
    """The one line in a file. BadInput says what is wrong, and nothing of what it holds."""
    try:
        return parse_token(path.read_bytes()).decode("ascii")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"can't read the token in {path}: {reason}") from None
