"""The checkpoint benchmark: what saving keeps a training from, and what a fault costs it."""
