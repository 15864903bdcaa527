"""The wire format of RocketMQ, shared by client and daemons; no I/O."""
