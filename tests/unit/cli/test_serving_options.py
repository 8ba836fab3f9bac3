"""`--listen` and `--listen-insecure`, as commands take them."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from holdfast_sidecar.cli.options import serving_options, settings_options
from holdfast_sidecar.config.loading import Effective


@click.command()
@serving_options
@settings_options
def show(effective: Effective, listen: str | None) -> None:
    """Say what it was given."""
    sidecar = effective.settings.sidecar
    click.echo(f"{listen} {sidecar.listen} {sidecar.listen_insecure}")


def test_what_is_said_aloud_holds_for_an_address_in_the_settings_too() -> None:
    wide = ["--set", "sidecar.listen=0.0.0.0:9750"]
    silent = CliRunner().invoke(show, wide)
    assert silent.output == "None 0.0.0.0:9750 False\n", "whoever serves judges it"
    taken = CliRunner().invoke(show, [*wide, "--listen-insecure"])
    assert taken.output == "None 0.0.0.0:9750 True\n"


@pytest.mark.parametrize(
    ("given", "output"),
    [([], "None 127.0.0.1:0 False\n"), (["--listen", ":9750"], ":9750 127.0.0.1:0 False\n")],
)
def test_without_it_nothing_is_changed(given: list[str], output: str) -> None:
    assert CliRunner().invoke(show, given).output == output
