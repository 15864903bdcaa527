"""The committed offsets of a group: at brokers or in a file, and where a new group starts."""
