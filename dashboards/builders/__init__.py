"""Plain builders of Holdfast's Grafana dashboards; `dashboards/write.py` writes what they make."""
