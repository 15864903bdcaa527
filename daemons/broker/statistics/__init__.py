"""Statistics of a broker by topic, group and day."""
