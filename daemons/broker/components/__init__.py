"""Components of a broker: each groups the objects of one subject and is made by one function."""
