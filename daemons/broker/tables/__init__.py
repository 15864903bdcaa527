"""The tables in config/: topics, groups, consumer offsets, and their files."""
