"""Giving messages to listeners, one after the other per queue or side by side."""
