"""Reading messages of queues: finding them, large answers, and pulls that wait."""
