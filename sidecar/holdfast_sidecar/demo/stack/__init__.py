"""`holdfast demo --stack`: a real alert, from a killed node to whoever is on call.

Prometheus and Alertmanager are the real ones with the shipped rules, routes and scrape block; only
who is called is ours, a webhook on loopback.
"""
