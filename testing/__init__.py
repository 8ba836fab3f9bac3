"""Outside the wheel: fake hardware, and two large demonstrations that need it or a pager."""
