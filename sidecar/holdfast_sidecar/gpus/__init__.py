"""What GPU readings mean: whose GPU it is, how its counters moved, what its energy bought."""
