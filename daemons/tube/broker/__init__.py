"""A TubeMQ broker: its store, its request handlers, and its session with the master."""
