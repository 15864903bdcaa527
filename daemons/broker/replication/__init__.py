"""Replication: copies a master's log, byte for byte, to its slaves (docs/decisions/0049)."""
