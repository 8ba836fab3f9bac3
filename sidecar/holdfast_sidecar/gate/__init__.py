"""The health gate: is this node fit for an attempt? Looked at all the time, tested on request."""
