"""Pop consumption (5.x): the broker hands out messages one by one and waits for their receipts."""
