"""The daemons and what they share."""
