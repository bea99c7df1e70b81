"""What the engines and environments stand on: compilation, its cache, memory's layout, checks, calls, saved states."""

__version__ = "0.2.0"
