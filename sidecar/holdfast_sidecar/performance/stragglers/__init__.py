"""Who is slow and why, what it costs: pure, from lines of steps and what is known of the nodes."""
