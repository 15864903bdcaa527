"""What a master answers to producers, consumers and brokers: a module for each of them."""
