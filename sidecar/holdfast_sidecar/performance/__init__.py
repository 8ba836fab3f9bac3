"""Where time goes, which rank is slow, and what it costs."""
