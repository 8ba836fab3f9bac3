"""What a sidecar serves over HTTP: metrics, its health, where the job's other sidecars are."""
