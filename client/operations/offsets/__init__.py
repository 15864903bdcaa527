"""What is done with the offsets of consumer groups."""
