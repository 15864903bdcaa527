"""Overload protection of a broker: limits of clients, topics and groups that are far behind."""
