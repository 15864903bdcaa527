"""Acting as master: what a slave does for a set whose master is gone (decision 0058)."""
