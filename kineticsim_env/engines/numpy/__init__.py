"""The NumPy engine, which the others must equal bit for bit, written from docs/model.md, not from them."""
