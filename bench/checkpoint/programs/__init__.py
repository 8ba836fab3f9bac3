"""What ranks run; each is a plain script with the three lines."""
