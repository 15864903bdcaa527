"""Whole clusters on a simulated clock, disk and network: one seed decides the order of everything.

docs/testing.md says what is simulated and what is not.
"""
