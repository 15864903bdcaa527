"""Metrics of a broker, imported only when they are read."""
