"""Pages that programs write: `python -m scripts.pages.NAME`; and what the pages of `examples/studies` are filled by."""
