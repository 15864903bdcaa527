"""Operations on the offsets of consumer groups."""
