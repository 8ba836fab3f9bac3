"""The demonstration: a real job on this machine, real faults, and what Holdfast made of them."""
