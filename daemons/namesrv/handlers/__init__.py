"""The handlers of a name server: a module per subject, a method per request code."""
