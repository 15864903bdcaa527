"""Sandboxes: processes that run uploaded classes, and are assumed to become hostile."""
