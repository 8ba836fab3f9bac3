"""Benchmarks of what whoever is on call looks at."""
