"""What administrators ask a master by HTTP: a module per subject, a method per name."""
