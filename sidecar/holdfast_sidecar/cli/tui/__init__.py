"""`holdfast top`: a live view on a terminal."""
