"""Thousands of invalid cluster files for the loader: `make fuzz`."""
