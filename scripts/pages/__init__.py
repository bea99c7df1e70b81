"""The measured pages of docs/: `python -m scripts.pages.NAME` measures one, draws its pictures and writes its text."""
