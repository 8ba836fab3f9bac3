"""What tasks and figures of the causes' row call their samples."""

CAUSES_ROW = "causes"
NOBODY = "nobody"
"""Nothing was said of the ranks in trouble."""
