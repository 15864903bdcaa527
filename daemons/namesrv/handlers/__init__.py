"""What a name server answers: a module per subject, a method per request code."""
