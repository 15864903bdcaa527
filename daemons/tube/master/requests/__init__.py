"""The answers of a master to producers, consumers and brokers: a module for each of them."""
