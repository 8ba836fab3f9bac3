"""Which RDMA devices are read: settings' patterns, asked before any of their files is opened."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from holdfast_sidecar.config.settings import FabricSettings


@dataclass(frozen=True)
class Selection:
    """Shell patterns of device names."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    @staticmethod
    def of(settings: FabricSettings) -> Selection:
        """As the settings have them."""
        return Selection(_patterns(settings.include), _patterns(settings.exclude))

    def has(self, name: str) -> bool:
        """Whether this device is read."""
        return _matches(name, self.include) and not _matches(name, self.exclude)


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
