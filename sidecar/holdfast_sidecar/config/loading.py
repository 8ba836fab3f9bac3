"""The effective settings and where each came from: flag > environment > file > default.

Reads holdfast.toml and an environment given to it; what the settings mean is in `settings`, which
ones fit together is judged in `ladder`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from holdfast.contract import environment as names
from holdfast_sidecar.config import timeouts
from holdfast_sidecar.config.paths import expand, personal_directory
from holdfast_sidecar.config.settings import BadInput, Settings

# One setting's value, from a file or from text: type, unit and sign. Knows no setting by name.

Value = str | int | float | bool

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "kib": 2**10,
    "kb": 10**3,
    "m": 2**20,
    "mib": 2**20,
    "mb": 10**6,
    "g": 2**30,
    "gib": 2**30,
    "gb": 10**9,
}
_SIZES = ("_bytes", "_bytes_per_s")
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True}
_BOOLEANS |= {"0": False, "false": False, "no": False, "off": False}


def parse_duration(text: str) -> float:
    """Seconds of `90`, `90s`, `500ms`, `5m`, `2h` or `1d`; ValueError says what is expected."""
    number, unit = _number_and_unit(text)
    if unit not in _SECONDS:
        raise ValueError("a duration is written 90, 90s, 500ms, 5m, 2h or 1d")
    return number * _SECONDS[unit]


def parse_size(text: str) -> int:
    """Bytes of `65536`, `64k`, `64MiB` or `2G`; ValueError says what is expected."""
    number, unit = _number_and_unit(text)
    if unit not in _BYTES:
        raise ValueError("a size is written 65536, 64k, 64MiB or 2G")
    return int(number * _BYTES[unit])


def read_value(name: str, kind: type, value: object) -> Value:
    """The value of setting `name`, converted to `kind`; ValueError says what is expected.

    The unit is in the name: `…_s` may be written as a duration, `…_bytes` (or `…_bytes_per_s`) as
    a size. Neither may be negative, nor a price (`…_hour`).
    """
    if isinstance(value, (dict, list)) or value is None:
        raise ValueError(f"expected {_expected(name, kind)}")
    if kind is str:
        return _text(value)
    if kind is bool:
        return _boolean(value)
    number = _number(name, kind, value)
    if name.endswith(("_s", "_bytes", "_hour")) and number < 0:
        raise ValueError("it must not be negative")
    return number


def write_value(value: Value) -> str:
    """The value as text that `read_value` reads back."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(name: str, kind: type, value: object) -> int | float:
    if isinstance(value, bool):
        raise ValueError(f"expected {_expected(name, kind)}")
    if isinstance(value, str):
        value = _number_from_text(name, kind, value.strip())
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"expected {_expected(name, kind)}")
    if kind is int and value != int(value):
        raise ValueError("expected a whole number")
    return int(value) if kind is int else float(value)


def _number_from_text(name: str, kind: type, text: str) -> float:
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        if name.endswith(_SIZES):
            return parse_size(text)
        if name.endswith("_s"):
            return parse_duration(text)
        raise ValueError(f"expected {_expected(name, kind)}") from None


def _number_and_unit(text: str) -> tuple[float, str]:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        return 0.0, "?"
    return float(match[1]), match[2].lower()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _BOOLEANS:
        return _BOOLEANS[value.strip().lower()]
    raise ValueError("expected true or false")


def _expected(name: str, kind: type) -> str:
    if name.endswith(_SIZES):
        return "a size such as 65536, 64MiB or 2G"
    if name.endswith("_s"):
        return "a duration such as 90, 90s, 5m or 2h"
    return {str: "text", bool: "true or false", int: "a whole number"}.get(kind, "a number")


FILE_NAME = "holdfast.toml"
COMMAND_LINE = "command line"
DEFAULT = "default"

_FROM_ENVIRONMENT = {
    names.REDIS_URL: "redis.url",
    names.REDIS_USER: "redis.user",
    names.REDIS_PASSWORD_FILE: "redis.password_file",
}

_PATHS = (
    "redis.password_file",
    "checkpoint.dir",
    "checkpoint.key_file",
    "paths.shm_dir",
    "paths.state_dir",
    "paths.machine_root",
)
"""Made absolute here, because launcher, sidecar and ranks need not share a working directory."""


_SUGGESTED = 3
"""The name that was meant is nearly always among so many; more are harder to read than the list."""


@dataclass(frozen=True)
class Effective:
    """The settings in force; `origins` tells for every `section.name` where it came from."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None = None


@dataclass(frozen=True)
class _Given:
    """A value somebody gave: setting `name` (`section.name`), where it was given."""

    name: str
    value: object
    origin: str


def load(
    policy: str | os.PathLike[str] | None = None,
    sets: Sequence[str] = (),
    flags: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Effective:
    """Read the settings and refuse those that don't fit together (see `ladder`).

    Parameters and errors as in `read`.
    """
    effective = read(policy, sets, flags, environment)
    wrong = timeouts.problems(effective.settings)
    if wrong:
        raise BadInput(wrong[0])
    return effective


def read(
    policy: str | os.PathLike[str] | None = None,
    sets: Sequence[str] = (),
    flags: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Effective:
    """Read the settings; BadInput names an unknown one or a wrong value in one line.

    `policy` is the file of `--policy` (default: the first holdfast.toml found), `sets` are the
    `section.name=value` of `--set`, `flags` maps `section.name` to the text of a flag of its own
    (None: the flag was not given).
    """
    environment = os.environ if environment is None else environment
    file = find_file(policy, environment)
    layers = [
        *(() if file is None else _from_file(file)),
        *_from_environment(environment),
        *_from_command_line(sets, flags or {}),
    ]
    return _apply(layers, file)


def find_file(policy: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Path | None:
    """The settings file: the one named, else the first that exists, else None."""
    if policy:
        path = expand(policy)
        if not path.is_file():
            raise BadInput(f"there is no settings file {path}")
        return path
    return next((path for path in search_path(environment) if path.is_file()), None)


def search_path(environment: Mapping[str, str]) -> list[Path]:
    """Where a settings file is looked for when none is named."""
    found = [Path(FILE_NAME), Path("/etc/holdfast") / FILE_NAME]
    with contextlib.suppress(BadInput):  # a user without a home directory has none of its own
        personal = personal_directory(environment.get("XDG_CONFIG_HOME"), "~/.config")
        found.insert(1, personal / "holdfast" / FILE_NAME)
    return found


def arguments(effective: Effective) -> list[str]:
    """Command-line arguments that give a child of ours the same settings.

    What came from the environment is left out: the child inherits that, secrets included.
    """
    given = [] if effective.file is None else ["--policy", str(effective.file.resolve())]
    for name, value in flatten(effective.settings):
        if effective.origins[name] == COMMAND_LINE:
            given += ["--set", f"{name}={write_value(value)}"]
    return given


def flatten(settings: Settings) -> Iterator[tuple[str, Value]]:
    """Every setting as (`section.name`, value), in the order of `settings`."""
    for section in dataclasses.fields(settings):
        part = getattr(settings, section.name)
        for field in dataclasses.fields(part):
            yield f"{section.name}.{field.name}", getattr(part, field.name)


def read_seconds(what: str, text: str) -> float:
    """A duration given to a command; BadInput names `what`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{what} {text!r}: {error}") from None


def known_names() -> list[str]:
    """Every `section.name`."""
    return [name for name, _ in flatten(Settings())]


def _from_file(path: Path) -> Iterator[_Given]:
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}") from None
    sections = [field.name for field in dataclasses.fields(Settings)]
    for section, values in content.items():
        if section not in sections:
            raise BadInput(
                f"{path}: unknown section [{section}]; known: {_near(section, sections)}"
            )
        if not isinstance(values, dict):
            raise BadInput(f"{path}: {section} is a section; write [{section}] above its settings")
        for name, value in values.items():
            yield _Given(f"{section}.{name}", value, f"file {path}")


def _from_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    for variable, name in _FROM_ENVIRONMENT.items():
        if environment.get(variable):
            yield _Given(name, environment[variable], f"environment {variable}")
    known = {_variable(name): name for name in known_names()}
    for variable in sorted(environment):
        if not variable.startswith(names.SETTINGS_PREFIX):
            continue
        if variable not in known:
            meant = difflib.get_close_matches(variable, known, n=_SUGGESTED, cutoff=0.0)
            raise BadInput(f"unknown setting ${variable}; {_like(meant)}")
        yield _Given(known[variable], environment[variable], f"environment {variable}")


def _from_command_line(sets: Sequence[str], flags: Mapping[str, str | None]) -> Iterator[_Given]:
    for text in sets:
        name, sign, value = text.partition("=")
        if not sign:
            raise BadInput(f"--set wants section.name=value, not {text!r}")
        yield _Given(name.strip(), value, COMMAND_LINE)
    for name, given in flags.items():
        if given is not None:
            yield _Given(name, given, COMMAND_LINE)


def _apply(layers: Sequence[_Given], file: Path | None) -> Effective:
    kinds = _kinds()
    changed: dict[str, dict[str, Any]] = {}
    origins = dict.fromkeys(kinds, DEFAULT)
    for given in layers:
        if given.name not in kinds:
            raise BadInput(f"unknown setting {given.name} ({given.origin}); {_meant(given.name)}")
        section, _, name = given.name.partition(".")
        try:
            value = read_value(name, kinds[given.name], given.value)
        except ValueError as error:
            raise BadInput(f"{given.name} = {given.value!r} ({given.origin}): {error}") from None
        if given.name in _PATHS:
            value = _absolute(str(value))
        changed.setdefault(section, {})[name] = value
        origins[given.name] = given.origin
    defaults = Settings()
    parts = {
        section: dataclasses.replace(getattr(defaults, section), **values)
        for section, values in changed.items()
    }
    return Effective(dataclasses.replace(defaults, **parts), origins, file)


def _kinds() -> dict[str, type]:
    sections = get_type_hints(Settings)
    return {
        f"{section}.{name}": kind
        for section, part in sections.items()
        for name, kind in get_type_hints(part).items()
    }


def _absolute(path: str) -> str:
    return str(expand(path).absolute()) if path and "://" not in path else path


def _variable(name: str) -> str:
    return names.SETTINGS_PREFIX + name.replace(".", "_").upper()


def _meant(wrong: str) -> str:
    """What could be meant by `section.name`: the section, else the likeliest names in it."""
    section, _, name = wrong.partition(".")
    sections = [field.name for field in dataclasses.fields(Settings)]
    if section not in sections:
        return f"known sections: {_near(section, sections)}"
    names_in_it = [field.name for field in dataclasses.fields(getattr(Settings(), section))]
    meant = difflib.get_close_matches(name, names_in_it, n=_SUGGESTED, cutoff=0.0)
    return _like([f"{section}.{one}" for one in meant])


def _like(meant: list[str]) -> str:
    return f"nearest: {', '.join(meant)} (holdfast config lists all)"


def _near(wrong: str, known: list[str]) -> str:
    """All known names, the likeliest meant first."""
    nearest = difflib.get_close_matches(wrong, known, n=3, cutoff=0.5)
    return ", ".join([*nearest, *(name for name in known if name not in nearest)])
