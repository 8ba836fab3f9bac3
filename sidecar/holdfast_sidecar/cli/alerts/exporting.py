"""`holdfast alerts export`: writes the rules, with links to your runbooks and dashboards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from holdfast_sidecar.cli.alerts.rule_files import (
    DASHBOARDS,
    RUNBOOKS,
    RuleFile,
    in_one,
    of_kubernetes,
    read_rules,
)
from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.config.settings import BadInput

ROUTES = "alertmanager.yml"

WORD = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"
LABEL = re.compile(rf"{WORD}=({WORD.replace('/', '')})?")
"""As Kubernetes allows them, but for their lengths."""

NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""The same; such names are labels of DNS."""


@click.command("export")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["prometheus", "kubernetes"]),
    default="prometheus",
    show_default=True,
    help="Files for Prometheus, or PrometheusRule objects.",
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Default: to stdout.")
@click.option("--runbook-url", metavar="BASE", default=RUNBOOKS, help="Where you serve runbooks/.")
@click.option("--dashboard-url", metavar="BASE", default=DASHBOARDS, help="Your Grafana.")
@click.option("--namespace", metavar="NAME", default="", help="Of the objects of Kubernetes.")
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="And their labels; repeatable."
)
def export_command(
    kind: str,
    out: Path | None,
    runbook_url: str,
    dashboard_url: str,
    namespace: str,
    labels: tuple[str, ...],
) -> None:
    """Write out the recording rules and alerts.

    With --out the runbooks come along and, for Prometheus, an example of Alertmanager's routes
    and inhibition (alertmanager.yml). Files of the same name are replaced, but for an
    alertmanager.yml unlike this version's, as your receivers may be in it: this version's is then
    written beside it as alertmanager.yml.new. Without --out all rules go to stdout as one file, or
    as documents of Kubernetes.

    \b
      holdfast alerts export > /etc/prometheus/holdfast.yaml
      holdfast alerts export --out alerting --runbook-url https://wiki.example/holdfast \\
          --dashboard-url https://grafana.internal
      holdfast alerts export --format kubernetes --label release=kube-prometheus-stack

    \b
    Exit code: 0 written
               2 something you gave is wrong, or a file can't be written
    """
    chosen = parse_labels(labels)
    if kind == "prometheus" and (chosen or namespace):
        raise BadInput("--namespace and --label are for --format kubernetes")
    if namespace and not NAMESPACE.fullmatch(namespace):
        raise BadInput(
            f"--namespace {namespace!r}: Kubernetes takes a-z, 0-9 and - within, 63 at most"
        )
    links = [base("--runbook-url", runbook_url), base("--dashboard-url", dashboard_url)]
    rules = [file.rebased(*links) for file in read_rules(asset("alerts/rules"))]
    documents = as_documents(rules, kind, chosen, namespace)
    if out is None:
        text = in_one(rules) if kind == "prometheus" else "---\n".join(documents.values())
        click.echo(text, nl=False)
    else:
        differs = kind == "prometheus" and routes_differ(out)
        written = write_all(out, {**documents, **beside(kind, routes_as(differs))})
        click.echo(f"wrote {written} files to {out}", err=True)
        if differs:
            text = f"{ROUTES} is unlike this version's and was left as it is"
            click.echo(f"holdfast: {text}; compare it with {routes_as(differs)}", err=True)
    for option, given, default in (
        ("--runbook-url", links[0], RUNBOOKS),
        ("--dashboard-url", links[1], DASHBOARDS),
    ):
        if given == default:
            click.echo(f"holdfast: links lead to {default}; say where with {option}", err=True)


def parse_labels(texts: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE, as often as given."""
    for text in texts:
        if not LABEL.fullmatch(text):
            raise BadInput(f"--label {text!r}: expected KEY=VALUE")
    return dict(text.split("=", 1) for text in texts)


def base(option: str, url: str) -> str:
    """A URL without the slash at its end, that YAML and a template leave as it is."""
    if not re.fullmatch(r"https?://[^\s\"'{}#?]+", url):
        raise BadInput(f"{option} {url!r}: expected http:// or https://, a host and a path")
    return url.rstrip("/")


def as_documents(
    rules: Sequence[RuleFile], kind: str, labels: Mapping[str, str], namespace: str
) -> dict[str, str]:
    """Path below --out -> content, of the rules."""
    if kind == "prometheus":
        return {f"rules/{file.theme}.yaml": file.text for file in rules}
    return {f"holdfast-{file.theme}.yaml": of_kubernetes(file, labels, namespace) for file in rules}


def beside(kind: str, routes: str) -> dict[str, str]:
    """Path below --out -> content, of what comes along; the routes under that name."""
    folder = asset("alerts/runbooks")
    books = {f"runbooks/{path.name}": path.read_text() for path in folder.glob("*.md")}
    if kind == "kubernetes":
        return books
    return {**books, routes: asset(f"alerts/{ROUTES}").read_text()}


def routes_as(differs: bool) -> str:
    """Under which name this version's routes are written."""
    return f"{ROUTES}.new" if differs else ROUTES


def routes_differ(folder: Path) -> bool:
    """Whether there are routes unlike the shipped ones: changed by hand, or of another version."""
    there = folder / ROUTES
    if not there.is_file():
        return False
    try:
        return there.read_bytes() != asset(f"alerts/{ROUTES}").read_bytes()
    except OSError as error:
        raise BadInput(f"can't read {there}: {error.strerror}") from None


def write_all(folder: Path, contents: Mapping[str, str]) -> int:
    """Write each under a name of its own first. How many they were."""
    for name, text in sorted(contents.items()):
        path = folder / name
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(text)
            unfinished.replace(path)
        except OSError as error:
            raise BadInput(f"can't write {path}: {error.strerror}") from None
    return len(contents)
