"""A TubeMQ broker: its store, what it answers, and its session with the master."""
