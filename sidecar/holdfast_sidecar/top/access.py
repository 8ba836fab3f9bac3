"""How sidecars are asked: which certificates are believed, and what token is shown."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.bad_input import BadInput

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

    def headers(self) -> dict[str, str]:
        """What is shown; read anew each time, as the file may be exchanged."""
        if not self.token_file:
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
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it holds more than letters, digits and signs"
        raise BadInput(f"can't read the token in {path}: {reason}") from None
    if not token or not token.isprintable() or " " in token:
        raise BadInput(f"{path} holds no token: it is one line without blanks")
    return token
