"""What compute-sanitizer watches: `python -m scripts.sanitizer`."""
