"""What a snode answers: a module per subject, a method per request code."""
