"""Message traces: who sent and who consumed a message, when, and how that went."""
