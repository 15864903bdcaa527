"""Sends messages: producers, transactions, requests with replies, and log records as messages."""
