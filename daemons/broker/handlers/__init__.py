"""What the broker answers: one function per request code, grouped by subject."""
