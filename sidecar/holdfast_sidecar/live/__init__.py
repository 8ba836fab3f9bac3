"""A job as it is right now, for people who watch it: the page and `holdfast top` show this."""
