"""Runs the commands in the documents, and compares their output with the documented output."""
