"""A unit file of systemd taken apart, and as much of it carried out as is possible without systemd.

For machines whose first process is another one. What is applied: user, environment, capabilities,
limits, and what a mount namespace can make read-only; what only seccomp or a control group could do
is not.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

READ_ONLY = {
    # systemd.exec(5)
    "ProtectSystem=full": ("/usr", "/boot", "/efi", "/etc"),
    "ProtectKernelTunables=yes": ("/proc/sys", "/sys"),
    "ProtectControlGroups=yes": ("/sys/fs/cgroup",),
}
"""Setting -> what is read-only then."""


@dataclass(frozen=True)
class Unit:
    """The last value of each setting, whatever its section."""

    values: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Unit:
        lines = path.read_text().replace("\\\n", " ").splitlines()
        pairs = [line.partition("=") for line in lines if re.match(r"[A-Z]\w*=", line)]
        return cls({name: value.strip() for name, _, value in pairs})

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def command(self, instance: str, host: str, environment: dict[str, str]) -> list[str]:
        """ExecStart as words: %i and %H written out; ${NAME} within a word, $NAME as words."""
        line = self["ExecStart"].replace("%i", instance).replace("%H", host)
        words: list[str] = []
        for word in shlex.split(line):
            if re.fullmatch(r"\$[A-Z_]+", word):
                words += environment.get(word[1:], "").split()
            else:
                words.append(re.sub(r"\$\{([A-Z_]+)\}", lambda m: environment.get(m[1], ""), word))
        return words

    def surroundings(self, uid: int) -> list[str]:
        """The words before the command: a mount namespace, limits, then the user and his rights."""
        return [
            *("unshare", "--mount", "--propagation=private", "sh", "-c"),
            "\n".join(["set -e", *self._mounts(), *self._limits(), 'exec "$@"']),
            *(
                "sh",
                "setpriv",
                f"--reuid={uid}",
                f"--regid={uid}",
                "--clear-groups",
                *self._rights(),
            ),
        ]

    def _mounts(self) -> list[str]:
        """Recursive, as what lies below would stay writable otherwise."""
        closed = [
            path
            for setting, paths in READ_ONLY.items()
            if self.values.get(setting.partition("=")[0]) == setting.partition("=")[2]
            for path in paths
        ]
        return [
            f"if [ -e {path} ]; then mount --rbind {path} {path}; "
            f"mount -o remount,bind,ro {path}; fi"
            for path in closed
        ]

    def _limits(self) -> list[str]:
        """Of this shell, so of what it becomes; where they may be raised (CAP_SYS_RESOURCE)."""
        limits = [f"--nofile={self['LimitNOFILE']}"]
        if "LimitNICE" in self:
            limits.append(f"--nice={20 - int(self['LimitNICE'])}")  # counts from 20 downwards
        return [f"prlimit --pid $$ {limit} 2>/dev/null || true" for limit in limits]

    def _rights(self) -> list[str]:
        ambient = _capabilities(self.values.get("AmbientCapabilities", ""))
        bounding = _capabilities(self.values.get("CapabilityBoundingSet", ""))
        kept = ",".join(["-all", *(f"+{name}" for name in ambient)])
        words = [f"--inh-caps={kept}", f"--ambient-caps={kept}"]
        if bounding:
            words.append(f"--bounding-set={','.join(['-all', *(f'+{name}' for name in bounding)])}")
        if self.values.get("NoNewPrivileges") == "yes":
            words.append("--no-new-privs")
        return words


def _capabilities(text: str) -> list[str]:
    """As setpriv(1) calls them."""
    return [name.removeprefix("CAP_").lower() for name in text.split()]


def read_environment(path: Path) -> dict[str, str]:
    """What EnvironmentFile= takes from a file, quotes removed."""
    pairs = [
        line.partition("=")
        for line in path.read_text().splitlines()
        if "=" in line and not line.lstrip().startswith(("#", ";"))
    ]
    return {name: " ".join(shlex.split(value)) for name, _, value in pairs}
