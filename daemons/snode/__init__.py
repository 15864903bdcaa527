"""Snodes: stateless proxies between clients and brokers, which push messages that are sent through
them.
"""
