"""The job's store: keys, its two twins, the embedded server, and what the loop is told from it."""
