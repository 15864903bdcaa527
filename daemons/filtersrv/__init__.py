"""The filter server: it pulls from the broker beside it and hands on what a group's class lets
through."""
