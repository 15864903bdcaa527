"""Sessions: connections to brokers and name servers, requests, route caches, and heartbeats.

`Session` runs on an event loop, `BlockingSession` without one; `Caller` is their common base.
"""
