"""The entry point of the `holdfast` script: all else is imported where Ctrl-C makes no traceback."""

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
