"""The filter server: pulls from its broker and delivers the messages that match a class."""
