"""Fuzzers of the whole package: `python -m scripts.fuzz`; docs/robustness.md says what they do."""
