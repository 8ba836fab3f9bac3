"""The programs of a node's self-test; they import torch and run apart."""
