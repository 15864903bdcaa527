"""Snodes: stateless proxies between clients and brokers, which push what is sent through them."""
