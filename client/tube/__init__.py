"""A client for TubeMQ: producers and consumers of its clusters, on an event loop."""
