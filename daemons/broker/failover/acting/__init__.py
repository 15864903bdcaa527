"""Acting master: the work that a slave does for a replica set whose master is down (decision
0058)."""
