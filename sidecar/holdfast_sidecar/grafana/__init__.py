"""Bringing dashboards and incidents into a Grafana: what to change is decided here, purely; the
client (the optional extra `grafana`) is imported only when a command talks to one.
"""
