"""Measurement only: the paper's suite, its baselines, and ours beside them. The engines never import this package."""
