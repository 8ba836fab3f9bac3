"""A live view as lines of text with a look. Pure; knows no terminal."""
