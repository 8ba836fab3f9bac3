"""Holdfast inside the training process. Importing it imports nothing else of weight."""

__version__ = "0.1.0"
