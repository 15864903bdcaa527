"""The wire of RocketMQ, shared by client and daemons: bytes in, values out, and no I/O."""
