"""Transactions: prepared messages, their ends, and the checks of open ones."""
