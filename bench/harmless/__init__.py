"""`bench harmless`: healthy but odd jobs, with Holdfast and without it, and what that changed."""
