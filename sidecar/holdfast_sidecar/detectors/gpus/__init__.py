"""What is wrong with GPUs, judged from one fresh reading and what went before it."""
