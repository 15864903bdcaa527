"""Pop consumption (5.x): the broker delivers messages one by one and waits for their
acknowledgements.
"""
