"""The leader's thread: election, one step of reconciliation, and carrying it out."""
