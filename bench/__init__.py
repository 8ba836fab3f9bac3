"""Benchmarks, run by `python -m bench NAME`; docs/benchmarks.md says how each one measures."""
