"""This process as a rank: attaching to it, its page, its signals and its end."""
