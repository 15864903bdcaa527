"""The display of results: tables, JSON, CSV, and the Java tool's own text."""
