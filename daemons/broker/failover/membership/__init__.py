"""Membership: a broker in a replica set whose master is elected by controllers (decision 0056)."""
