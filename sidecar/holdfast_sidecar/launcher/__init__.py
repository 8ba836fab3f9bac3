"""The launcher: torch's elastic agent, subclassed. Starts, watches and ends the ranks of a node."""
