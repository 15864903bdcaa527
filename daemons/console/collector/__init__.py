"""Collects the data of a cluster in the background, so that pages never wait for brokers."""
