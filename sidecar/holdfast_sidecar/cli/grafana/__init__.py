"""Pushing dashboards and annotations to a Grafana."""
