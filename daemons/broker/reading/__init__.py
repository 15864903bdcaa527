"""Reading messages of queues: message search, bulk replies, and suspended pulls."""
