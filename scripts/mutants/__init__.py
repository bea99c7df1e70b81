"""Mechanical mutants of the package and of the C++ headers; `make mutants`."""
