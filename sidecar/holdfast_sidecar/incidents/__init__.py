"""Evidence: what a failure left, read and judged, and the bundle that it is kept in."""
