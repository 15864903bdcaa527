"""The command `mq`."""
