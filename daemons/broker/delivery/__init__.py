"""Messages that the broker itself delivers: delayed, retried, put back, set aside."""
