"""The effective settings and where each came from: flag > environment > file > default.

Reads holdfast.toml and an environment given to it; what the settings mean is in `settings`, which
ones fit together is judged in `ladder`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from holdfast import environment as names
from holdfast_sidecar import ladder
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.home import expand, personal_directory
from holdfast_sidecar.setting_values import Value, parse_duration, read_value, write_value
from holdfast_sidecar.settings import Settings

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
    wrong = ladder.problems(effective.settings)
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
