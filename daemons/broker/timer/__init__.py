"""Messages that are due at any time: the files of RocketMQ 5's timer and the service on them."""
