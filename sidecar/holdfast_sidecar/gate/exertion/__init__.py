"""A node's test by work: products, memory, sums over its ranks. A child with torch, for seconds.

Nothing on the sidecar's path imports this.
"""
