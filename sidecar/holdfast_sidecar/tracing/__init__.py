"""Traces of chosen steps: this node's part of one, what is in a trace, and two of them compared."""
