"""A run's time: which category is open, how steps are split, what failures cost. Pure.

Nothing here asks a store or a clock; `goodput_keeping` does, `docs/goodput.md` defines the words.
"""
