"""Overload protection of a broker: limits for clients, topics and lagging groups."""
