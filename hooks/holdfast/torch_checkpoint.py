"""One manner of calling torch.distributed.checkpoint: without its remarks, with ordinary errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed.checkpoint.api import CheckpointException


@contextmanager
def torch_checkpoint(failure: type[Exception]) -> Iterator[None]:
    """Turn torch's CheckpointException into `failure`.

    It is no Exception, so no ordinary handler would stop it; and it also swallows what was meant
    for the interpreter (SystemExit from a signal handler), which is let through here.
    """
    with warnings.catch_warnings():
        # It remarks that it works without a process group; that is meant so.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
        try:
            yield
        except CheckpointException as error:
            causes = {rank: wrapped[0] for rank, wrapped in error.failures.items()}
            for cause in causes.values():
                if not isinstance(cause, Exception):
                    raise cause from None
            text = "; ".join(f"rank {rank}: {cause}" for rank, cause in sorted(causes.items()))
            raise failure(text) from error
