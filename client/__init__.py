"""The asyncio client: sessions, admin calls, producers and consumers."""
