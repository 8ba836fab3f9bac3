"""Where the `holdfast` script begins: a Ctrl-C during the imports makes no traceback either."""

from __future__ import annotations

import sys
from typing import NoReturn


def script() -> NoReturn:
    """Run the command; 130, as a shell has it, when it was interrupted before it began."""
    try:
        from holdfast_sidecar.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)
