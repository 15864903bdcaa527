"""Sandboxes: processes in which uploaded classes run, and that are expected to turn hostile."""
