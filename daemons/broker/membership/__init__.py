"""Membership: a broker's place in a set whose master is elected by controllers (decision 0056)."""
