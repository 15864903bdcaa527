"""Clients of snodes: requests through proxies, and the messages that these push."""
