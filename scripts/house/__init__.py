"""Moving modules by machine: the map, the rewriting, and the proof that nothing else changed."""
