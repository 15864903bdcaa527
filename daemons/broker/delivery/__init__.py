"""Messages that the broker itself delivers: delayed, retried, restored, quarantined."""
