"""Overload protection: refuses early, with short replies, and cheaply."""
