"""`holdfast dashboards export`: the files, for provisioning or an import by hand."""

from __future__ import annotations

import os
from pathlib import Path

import click

from holdfast.owned import owned_file
from holdfast.removing import unlink
from holdfast_sidecar.cli.dashboards.shipped import shipped_boards, shipped_folder
from holdfast_sidecar.config.settings import BadInput


@click.command("export")
@click.option(
    "--out", default="holdfast-dashboards", metavar="DIR", help="Default: holdfast-dashboards."
)
def export_command(out: str) -> None:
    """Write the dashboards into a folder, as Grafana 10 to 13 import them, with provisioning files.

    No Grafana, token or extra package is needed. Files that are there by these names are replaced.

    \b
      holdfast dashboards export
      holdfast dashboards export --out /etc/grafana/dashboards/holdfast
    """
    boards, source = shipped_boards(), shipped_folder()
    names = [f"{board.uid}.json" for board in boards]
    names += sorted(f"provisioning/{path.name}" for path in source.glob("provisioning/*.yaml"))
    folder = Path(out).expanduser()
    try:
        for name in names:
            _write(folder / name, (source / name).read_bytes())
    except OSError as error:
        raise BadInput(
            f"cannot write into {folder}: {error.strerror}; choose another --out"
        ) from None
    click.echo("\n".join(str(folder / name) for name in names))


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unlink(owned_file(unfinished), missing_ok=True)
