"""The configurations that Holdfast ships, with the addresses of this machine in them; else as they
are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRAPING = ROOT / "deploy" / "prometheus" / "prometheus.yml"
ALERTS = ROOT / "alerts"


def prometheus_files(folder: Path, seeds: list[str], alertmanager: str = "") -> Path:
    """Rules and configuration in this folder. seeds: sidecars that lead to the others."""
    shutil.copytree(ALERTS / "rules", folder / "rules")
    config: dict[str, Any] = yaml.safe_load(SCRAPING.read_text())
    (block,) = config["scrape_configs"]
    (like, *_) = block["http_sd_configs"]
    block["http_sd_configs"] = [{**like, "url": f"http://{seed}/sd"} for seed in seeds]
    if alertmanager:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def alertmanager_file(folder: Path, webhook: str) -> Path:
    """Routes and times as shipped; every receiver is a path of this webhook."""
    config: dict[str, Any] = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    config["receivers"] = [_receiver(one["name"], webhook) for one in config["receivers"]]
    path = folder / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def _receiver(name: str, webhook: str) -> dict[str, Any]:
    if name == "nobody":
        return {"name": name}
    return {"name": name, "webhook_configs": [{"url": f"{webhook}/{name}"}]}
