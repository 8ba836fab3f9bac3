"""`holdfast demo`: a job on this machine, its faults, and whether it survived them."""
