"""What a cluster does, asked for in the background, so that pages never wait for brokers."""
