"""The C++ engine built ahead of its use, for machines without a compiler: `python -m scripts.prebuilt`."""
