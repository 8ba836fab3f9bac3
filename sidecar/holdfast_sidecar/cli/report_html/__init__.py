"""A run's report as one HTML page with plots in it: no script, nothing fetched from anywhere."""
