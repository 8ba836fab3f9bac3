"""What a sidecar tells others over HTTP: metrics, the live view, status and discovery."""
