"""How results look: tables, JSON, CSV, and the Java tool's own text."""
