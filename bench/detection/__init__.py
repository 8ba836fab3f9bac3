"""The detection benchmark: how soon, and how surely, it is known what broke."""
