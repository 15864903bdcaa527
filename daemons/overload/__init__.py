"""Overload protection: refuse early, in few words, and cheaply."""
