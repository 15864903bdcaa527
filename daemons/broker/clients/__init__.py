"""Clients of the broker: members of groups, and queue locks."""
