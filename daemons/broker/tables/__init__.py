"""What a broker keeps in config/: topics, groups, consumer offsets, and how they are saved."""
