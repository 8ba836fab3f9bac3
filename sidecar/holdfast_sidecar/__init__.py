"""The sidecar: one process per job and node that watches, agrees, saves and restarts.

Never imports torch, except in `launcher`, which nothing on the sidecar's path imports.
"""

__version__ = "0.1.0"
