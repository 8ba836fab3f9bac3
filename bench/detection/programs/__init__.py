"""Programs that the rows of the detection benchmark start."""
