"""A Grafana's refusals in one line each: what was asked, why not, what helps. Pure."""

from __future__ import annotations

from holdfast_sidecar.grafana.server import Refused


def refused(status: int, what: str, url: str, said: str = "") -> Refused:
    """`what` was asked, such as `save the dashboard holdfast-run`; `said` is Grafana's answer."""
    return Refused(status, f"Grafana at {url} {_words(status, what, ' '.join(said.split()))}")


def silent(what: str, url: str, reason: str) -> Refused:
    """It can't be reached."""
    return Refused(
        0,
        f"Grafana at {url} does not answer when asked to {what} ({' '.join(reason.split())}): is "
        "the address right, and does it run?",
    )


def late(what: str, url: str) -> Refused:
    """It answers, and so slowly that the time was over before it had."""
    return Refused(
        0,
        f"Grafana at {url} answers too slowly: the time was over when it was asked to {what}; try "
        "again when it, or what stands before it, is less busy",
    )


def odd(what: str, url: str) -> Refused:
    """Something answered, and not as a Grafana does: a login page, a proxy, another program."""
    return Refused(
        0,
        f"what answers at {url} does not answer as Grafana does when asked to {what}: is the "
        "address right, and does a login page or a proxy stand before it?",
    )


def _words(status: int, what: str, said: str) -> str:
    if status == 401:
        return (
            "does not know the token (401): make a service account with the role Editor and give "
            "its token in --token-file or HOLDFAST_GRAFANA_TOKEN"
        )
    if status == 403:
        return (
            f"does not let this token {what} (403): it needs the role Editor, and Edit on the "
            "folder"
        )
    if status == 404:
        return (
            f"answers 404 when asked to {what}: is the address complete, with the sub-path that "
            "Grafana serves below?"
        )
    if status == 412 and "name" in said:
        return f"has another dashboard of that title there (412), so it won't {what}: rename that"
    if status == 412:
        return f"won't {what} (412): somebody changed it a moment ago; look at it, then push again"
    if 500 <= status < 600:
        return f"failed to {what} ({status}: {said or 'no reason given'}): see its log"
    return f"refuses to {what} ({status}: {said or 'no reason given'})"
