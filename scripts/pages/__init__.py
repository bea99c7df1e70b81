"""The pages of docs/ that programs write: `python -m scripts.pages.NAME`. Measured ones draw pictures, too."""
