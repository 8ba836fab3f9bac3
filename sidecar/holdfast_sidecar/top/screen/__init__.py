"""The lines on a terminal, and its keys. Alone in here Textual is imported."""
