"""Delivery of messages to listeners, in order per queue or concurrently."""
