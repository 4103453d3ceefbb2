"""Files that nobody should write, given to the loader by the thousand: `make fuzz`."""
