"""Lets a thread that exchanges with the store go on whatever one exchange ran into.

Such a thread that ended without a word would leave a node deaf or mute for the rest of the job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast_sidecar.coordination.store import StoreUnavailable


class ExchangeGuard:
    """Guards one thread's exchanges; an error of our own is logged once, not at every retry."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged = ""

    def run(self, exchange: Callable[[], None]) -> Exception | None:
        """Exchange; what ended it, or None. StoreUnavailable is the caller's to tell of."""
        try:
            exchange()
        except StoreUnavailable as error:
            return error
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != self._logged:
                self._logger.exception(
                    "an exchange with the store failed, the next one comes all the same"
                )
                self._logged = text
            return error
        self._logged = ""
        return None
