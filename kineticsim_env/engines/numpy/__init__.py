"""The NumPy engine: the oracle that the others must equal bit for bit, written from docs/model.md, not from them."""
