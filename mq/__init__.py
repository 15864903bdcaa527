"""A RocketMQ-compatible messaging toolkit."""

__version__ = "0.1.0"
