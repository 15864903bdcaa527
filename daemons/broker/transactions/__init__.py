"""Transactions: prepared messages, how they end, and the checks of those that do not."""
