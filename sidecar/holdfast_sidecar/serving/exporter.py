"""Holds the newest picture of one job's node, and serves what is to be known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from holdfast_sidecar.picture import Picture
from holdfast_sidecar.serving.protection import Protection
from holdfast_sidecar.serving.route import Answer, Listener, Request, Route
from holdfast_sidecar.serving.server import Server


@dataclass
class Exporter:
    """The loop's teller: hands pictures on; answers are made when somebody asks."""

    routes: Sequence[Route]
    listeners: Sequence[Listener] = ()
    protection: Protection = field(default_factory=Protection)
    _picture: Picture | None = None
    _server: Server | None = None

    def tell(self, picture: Picture) -> None:
        """Take the newest picture (one assignment; a scrape in progress keeps the one it has)."""
        self._picture = picture
        for listener in self.listeners:
            listener.hear(picture)

    def serve(self, listen: str) -> int:
        """Listen on `host:port` (port 0: any free one) and answer the port that it became.

        Raises BadInput when that can't be.
        """
        self._server = Server(listen, self.protection, self.answer)
        return self._server.start()

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()

    def answer(self, request: Request) -> Answer:
        """What the path's route says; 401 to those who need the token, 404 where there is none."""
        route = next((one for one in self.routes if one.path == request.path), None)
        if not request.is_known and (route is None or not route.is_open):
            return REFUSED
        if route is None:
            known = ", ".join(one.path for one in self.routes)
            return Answer(f"here are {known}\n".encode(), status=HTTPStatus.NOT_FOUND)
        return route.answer(request, self._picture)


REFUSED = Answer(
    b"a token is needed: Authorization: Bearer ...\n",
    status=HTTPStatus.UNAUTHORIZED,
    headers={"WWW-Authenticate": 'Bearer realm="holdfast"'},
)
