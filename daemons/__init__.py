"""The daemons and their shared modules."""
