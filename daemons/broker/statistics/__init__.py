"""What a broker counts, by topic, group and day, and what it tells of that."""
