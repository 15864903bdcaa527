"""The HTTP methods of a master for administrators: a module per subject, a method per name."""
