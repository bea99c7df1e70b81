"""The pages of docs/ that programs write: `python -m scripts.pages.NAME` writes one; measured ones draw pictures, too."""
