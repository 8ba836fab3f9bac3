"""What the telemetry of one node costs, and how soon and how rightly it speaks; on fakes."""
