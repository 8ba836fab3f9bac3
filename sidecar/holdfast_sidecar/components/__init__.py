"""Node health: what is read of the machine, and what is wrong with it, signal by signal."""
