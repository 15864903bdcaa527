"""The handlers of a snode: a module per subject, a method per request code."""
