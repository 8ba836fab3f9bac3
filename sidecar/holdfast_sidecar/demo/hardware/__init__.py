"""`holdfast demo --gpus N`: a real job on GPUs that are none, and hardware that fails."""
