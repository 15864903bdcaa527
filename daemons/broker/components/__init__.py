"""Wiring: the parts of a broker, in groups of one subject, each made by one function."""
