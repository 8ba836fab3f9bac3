"""The checkpoint writer: a child of the sidecar that does its storage work and imports torch."""
