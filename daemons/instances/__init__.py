"""Several brokers of one machine under one command: their plan, and their supervision."""
