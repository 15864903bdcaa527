"""The broker: stores messages and serves them."""
