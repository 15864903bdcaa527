"""What commands do with the offsets of consumer groups."""
