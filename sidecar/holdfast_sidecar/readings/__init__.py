"""What probes read: plain data between probes, detectors and metrics, one file per part."""
