"""Traders that users write: a Python function of whole numbers becomes a class of agents that every engine plays."""
