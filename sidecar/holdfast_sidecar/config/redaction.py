"""What must not be written down: passwords, keys and tokens, wherever text may carry them.

Pure, but for the names in the root directory, by which a path is told from a secret.

Three ways to know a secret: what its name is (`--password x`, `API_KEY=x`), what it looks like (a
URL's user, a JSON web token), and what it is (the value of a variable with such a name).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast_sidecar.config.settings import Settings

REDACTED = "[redacted]"

LEAST_CHARACTERS = 6
"""A shorter value stands in too many innocent places; with its name it is found all the same."""

_WORD = (
    r"passw(?:or)?d|passphrase|secret|token(?!s|i[sz])|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|account[_-]?key|signing[_-]?key|encryption[_-]?key|auth[_-]?key"
    r"|credential|authorization|cookie|webhook|connection[_-]?string"
)
"""Parts of a name that say what is behind it. `tokens` and `tokenizer` are a trainer's daily words,
and `key` alone is any dictionary's."""

_QUERY = r"[?&;](?:x-(?:amz|goog)-)?(?:sig|signature|credential|security-token)"
"""What signs a URL of an object store."""

_SECRET_NAME = re.compile(rf"{_WORD}|(?:^|[_.-])(?:pass|pwd|auth|dsn|key)$", re.IGNORECASE)
_NO_SECRET_NAME = re.compile(
    r"^(?:old)?pwd$|[_-](?:file|path|dir)$|token_?(?:ids?|type|count)"
    r"|(?:pad|eos|bos|unk|mask|sep|cls|next|max|num|per)_token$",
    re.IGNORECASE,
)
"""Where the shell stands, where a secret lies, and what language models are made of is none."""

_COUNT = re.compile(r"[0-9][0-9_.,]{0,11}")
"""`token: 4096` counts something."""

_PAIR = re.compile(
    rf"(?P<name>(?<![\w.-])[\w.-]{{0,64}}?(?:{_WORD})[\w.-]{{0,64}}|{_QUERY})"
    r"(?P<sign>\\{0,3}[\"']?\s{0,2}(?:=>|[=:])\s{0,2})"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|\\{1,3}[\"'][^\"'\\\n]*"
    r"|(?:(?:bearer|basic|token)\s+)?[^\s,;&\"'<>)\]}]+)",
    re.IGNORECASE,
)
"""Quotes may be escaped: JSON stands in JSON, and in what `repr` makes of it."""
_OPTION = re.compile(
    rf"(?P<name>(?<!\S)--?[\w.-]{{0,64}}?(?:{_WORD})[\w.-]{{0,64}})(?P<sign>\s+)"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s-]\S*)",
    re.IGNORECASE,
)
_AUTHORITY = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,30}://)"
    r"(?:[^\s/\"'<>@]{0,500}@|[^\s\"'<>@/:]{0,200}:[^\s\"'<>@]{0,500}@)+"
)
"""The user and password of a URL; a password may hold an unescaped slash or @. Bounded,
else one endless line would take the square of its length."""
_PASSWORD = re.compile(r"://[^\s:/@]{0,200}:([^\s@]{1,500})@")
_BEARER = re.compile(r"\b(?P<kind>bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_SHAPES = re.compile(
    r"\b(?:A(?:KIA|SIA)[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abeprs]-[A-Za-z0-9-]{10,}"
    r"|AIza[A-Za-z0-9_-]{30,}|glpat-[A-Za-z0-9_-]{16,}|ya29\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?)"
    r"|(?<=hooks\.slack\.com/services/)\S+"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.{0,16384}?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?:^[A-Za-z0-9+/=]{16,}\n)+-----END [A-Z ]*PRIVATE KEY-----",
    re.DOTALL | re.MULTILINE,
)
"""Also one whose beginning was cut off, as the tail of a log does."""
_HINT = re.compile(
    rf"{_WORD}|{_QUERY}|://|bearer|basic|AKIA|ASIA|gh[pousr]_|github_pat|hf_|sk-|xox|AIza|glpat"
    r"|ya29|eyJ",
    re.IGNORECASE,
)
"""A line without any of these stays as it is; most do."""


@dataclass(frozen=True)
class Redaction:
    """Takes secrets out of text; `known` are values that are secret whatever stands before them."""

    known: frozenset[str] = frozenset()

    def text(self, text: str) -> str:
        """The text without secrets."""
        for secret in sorted(self.known, key=len, reverse=True):
            text = text.replace(secret, REDACTED)
        if "PRIVATE KEY-----" in text:
            text = _PRIVATE_KEY.sub(REDACTED, text)
        return "\n".join(map(_line, text.split("\n")))

    def known_bytes(self, content: bytes) -> bytes:
        """The bytes without what is known to be secret: for what is large and machine-written."""
        for secret in self.known:
            content = content.replace(secret.encode(), REDACTED.encode())
        return content

    def command(self, arguments: Sequence[str]) -> list[str]:
        """A command line without secrets: also where an option's value is the next argument."""
        clean = []
        follows = False
        for argument in arguments:
            is_option = argument.startswith("-")
            clean.append(REDACTED if follows and not is_option else self._argument(argument))
            follows = is_option and "=" not in argument and is_secret_name(argument)
        return clean

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Variables without secrets, by name."""
        return {name: self._named(name, value) for name, value in sorted(variables.items())}

    def plain(self, value: Any) -> Any:
        """Plain data for JSON, without secrets in any of its text."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                str(key): self._named(str(key), inner)
                if isinstance(inner, str)
                else self.plain(inner)
                for key, inner in value.items()
            }
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.plain(inner) for inner in value]
        return value

    def _argument(self, argument: str) -> str:
        name, _, value = argument.partition("=")
        if value and is_secret_name(name):
            return f"{self.text(name)}={REDACTED}"
        # As a whole: the sign may well stand inside a URL, behind its password.
        return self.text(argument)

    def _named(self, name: str, value: str) -> str:
        return REDACTED if value and is_secret_name(name) else self.text(value)


def redact(text: str) -> str:
    """The text without what is known for a secret by its name or its looks."""
    return Redaction().text(text)


def is_secret_name(name: str) -> bool:
    """Whether what goes by this name (of a variable, an option, a field) is a secret."""
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET_NAME.search(name)


def secrets_among(variables: Mapping[str, str]) -> frozenset[str]:
    """Values that are secret because of their names, and passwords of URLs, to be known again."""
    named = known_secrets(value for name, value in variables.items() if is_secret_name(name))
    found = (_PASSWORD.findall(value) for value in variables.values() if "://" in value)
    return named | known_secrets(password for passwords in found for password in passwords)


def known_secrets(values: Iterable[str]) -> frozenset[str]:
    """Those that are long and odd enough to be searched for as they stand: no count, no path."""
    return frozenset(
        value
        for value in values
        if len(value) >= LEAST_CHARACTERS and not _is_path(value) and not _COUNT.fullmatch(value)
    )


def _is_path(value: str) -> bool:
    """Whether it says where something lies on this machine: base64 may begin with a slash too, and
    a password with anything. A full look at the path could wait for a server that is away."""
    if value[0] != "/":
        return value.startswith(("./", "../", "~/"))
    root, _, _ = value[1:].partition("/")
    return root in {place.name for place in Path("/").iterdir()}


def _line(line: str) -> str:
    if not _HINT.search(line):
        return line
    line = _AUTHORITY.sub(rf"\g<scheme>{REDACTED}@", line)
    line = _PAIR.sub(_without_value, line)
    line = _OPTION.sub(_without_value, line)
    line = _BEARER.sub(rf"\g<kind> {REDACTED}", line)
    return _SHAPES.sub(REDACTED, line)


def _without_value(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    quote = value[0] if value[0] in "\"'" else ""
    is_count = "token" in name.lower() and _COUNT.fullmatch(value.strip(quote or None))
    if _NO_SECRET_NAME.search(name) or is_count:
        return match[0]
    return f"{name}{match['sign']}{quote}{REDACTED}{quote}"


# The secrets that this process was given itself: they may stand in its log or in an error.


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
