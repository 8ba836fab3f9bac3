"""`holdfast alerts export`: writes the rules, with links to your runbooks and dashboards."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.config.settings import BadInput

# The rule files as text: where their links lead, all in one, as objects of Kubernetes.
#
# Pure but for reading them.
#
# As text, because comments carry the reason of every threshold, and because a training environment
# need not have a YAML library. What this relies on, a test checks: a file is comments, the line
# `groups:`, and groups.

RUNBOOKS = "https://runbooks.example/holdfast"
"""Where the links to runbooks lead, until somebody says where they are."""

DASHBOARDS = "https://grafana.example"
"""The same for Grafana."""

GROUPS_KEY = "groups:\n"


@dataclass(frozen=True)
class RuleFile:
    """One theme."""

    theme: str
    text: str

    def rebased(self, runbook_url: str, dashboard_url: str) -> RuleFile:
        """The same, with links that lead there."""
        text = self.text.replace(f"{RUNBOOKS}/", f"{runbook_url}/")
        return RuleFile(self.theme, text.replace(f"{DASHBOARDS}/", f"{dashboard_url}/"))

    @property
    def comment(self) -> str:
        """What stands before the groups."""
        return self.text.partition(GROUPS_KEY)[0].rstrip("\n")

    @property
    def groups(self) -> str:
        """The groups alone."""
        return self.text.partition(GROUPS_KEY)[2]


def read_rules(folder: Path) -> list[RuleFile]:
    """All rule files of a folder, by name."""
    return [RuleFile(path.stem, path.read_text()) for path in sorted(folder.glob("*.yaml"))]


def in_one(files: Sequence[RuleFile]) -> str:
    """All of them as one file for Prometheus."""
    parts = [_indented(file.comment) + "\n" + file.groups for file in files]
    return GROUPS_KEY + "".join(parts)


def of_kubernetes(
    file: RuleFile, labels: Mapping[str, str], namespace: str = "", name: str = ""
) -> str:
    """A PrometheusRule of the Prometheus operator.

    labels: those that the operator's `ruleSelector` looks for. namespace empty: that of whoever
    applies it.
    """
    lines = [
        *file.comment.splitlines(),
        "apiVersion: monitoring.coreos.com/v1",
        "kind: PrometheusRule",
        "metadata:",
        f"  name: {name or f'holdfast-{file.theme}'}",
    ]
    if namespace:
        lines.append(f"  namespace: {namespace}")
    lines.append("  labels:")
    everyone = {"app.kubernetes.io/part-of": "holdfast", **labels}
    lines += [f'    {label}: "{value}"' for label, value in everyone.items()]
    return "\n".join([*lines, "spec:", f"  {GROUPS_KEY}"]) + _indented(file.groups).lstrip("\n")


def _indented(text: str) -> str:
    return "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True))


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


# Rules inside objects of Kubernetes, as Prometheus itself would read them. Pure.
#
# As text, for the reasons that rule_files.py has; blank lines stand for all that is left out, so
# that promtool's line numbers are those of the file.

KIND = re.compile(r"kind:\s*[\"']?PrometheusRule[\"']?\s*(#.*)?")
SPEC = re.compile(r"spec:\s*(#.*)?")

SOMEWHERE = re.compile(r"""^[^#]*["']?kind["']?:\s*["']?PrometheusRule\b""", re.MULTILINE)
GROUPS = re.compile(r"""^[^#]*\bgroups["']?:""", re.MULTILINE)
PLAIN_GROUPS = re.compile(r"^groups:", re.MULTILINE)

UNREAD = (
    "holds objects of Kubernetes in a form that isn't read here (a List, or one line for all): "
    "write each as a document of its own, with `spec:` on a line of its own"
)


def is_of_kubernetes(text: str) -> bool:
    """Whether there is a PrometheusRule in it."""
    return any(KIND.fullmatch(line) for line in text.splitlines())


def is_unread(text: str) -> bool:
    """Whether there are rules in objects that `rules_within` does not find."""
    if SOMEWHERE.search(text) is None or GROUPS.search(text) is None or PLAIN_GROUPS.search(text):
        return False
    return not any(GROUPS.search(part) for part in rules_within(text))


def rules_within(text: str) -> list[str]:
    """What stands in the `spec` of each PrometheusRule, as a rule file of its own."""
    found: list[list[str]] = []
    is_rule = is_inside = False
    for number, line in enumerate(text.splitlines()):
        if re.match(r"\S", line) and not line.startswith("#"):
            is_inside = is_rule and SPEC.fullmatch(line) is not None
            is_rule = KIND.fullmatch(line) is not None or (is_rule and not line.startswith("---"))
            if is_inside:
                found.append([""] * (number + 1))
        elif is_inside:
            found[-1].append("" if line.startswith("#") else line)
    return [_dedented(lines) for lines in found]


def _dedented(lines: Sequence[str]) -> str:
    return textwrap.dedent("\n".join(lines)) + "\n"
