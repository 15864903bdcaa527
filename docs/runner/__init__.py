"""Runs the commands that the documents show, and compares what they print with what is shown."""
