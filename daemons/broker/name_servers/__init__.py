"""The name servers of a broker: what they are told of it, and that it lives."""
