"""Consumers that are members of a group, and the delivery of messages to their users."""
