"""Holds the newest picture of one job's node, and serves what is to be known of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from holdfast_sidecar.metrics.drawing import while_leading
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.serving.route import Answer, Listener, Request, Route
from holdfast_sidecar.serving.server import Server
from holdfast_sidecar.store.orders import Orders


@dataclass
class Exporter:
    """The loop's teller: hands pictures on; answers are made when somebody asks."""

    routes: Sequence[Route]
    listeners: Sequence[Listener] = ()
    server: Server | None = None
    orders: Callable[[], Orders] | None = None
    """What coordination agreed on since the newest picture, once there is coordination."""
    clock: Callable[[], float] = time.monotonic
    _picture: Picture | None = None

    def tell(self, picture: Picture) -> None:
        """Take the newest picture (one assignment; a scrape in progress keeps the one it has)."""
        self._picture = picture
        for listener in self.listeners:
            listener.hear(picture)

    def serve(self) -> None:
        """Begin to answer."""
        if self.server is not None:
            self.server.start(self.answer)

    def close(self) -> None:
        """Stop serving."""
        if self.server is not None:
            self.server.close()

    def answer(self, request: Request) -> Answer:
        """What the path's route says; 401 to those who need the token, 404 where there is none."""
        route = next((one for one in self.routes if one.path == request.path), None)
        if not request.is_known and (route is None or not route.is_open):
            return REFUSED
        if route is None:
            known = ", ".join(one.path for one in self.routes)
            return Answer(f"here are {known}\n".encode(), status=HTTPStatus.NOT_FOUND)
        return route.answer(request, self._current())

    def _current(self) -> Picture | None:
        picture = self._picture
        if picture is None or self.orders is None:
            return picture
        return while_leading(picture, self.orders(), self.clock())


REFUSED = Answer(
    b"a token is needed: Authorization: Bearer ...\n",
    status=HTTPStatus.UNAUTHORIZED,
    headers={"WWW-Authenticate": 'Bearer realm="holdfast"'},
)
