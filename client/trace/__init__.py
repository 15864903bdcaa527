"""Message traces: who sent and consumed a message, when, and with which result."""
