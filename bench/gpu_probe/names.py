"""The rows of `bench gpu-probe`."""

SIGNALS = "signals"
POLL = "poll"
