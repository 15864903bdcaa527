"""A TubeMQ master: who registers, who consumes what, and what brokers are to have."""
