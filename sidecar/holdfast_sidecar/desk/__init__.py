"""The desk: where the sidecar asks about checkpoint storage, and who answers in its place."""
