"""What the leader decides: pure functions of plain data and an explicit now."""
