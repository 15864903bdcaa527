"""Clients of the broker: who is connected in which group, and who has locked which queue."""
