"""Clients of snodes: requests that go through proxies, and messages that these push."""
