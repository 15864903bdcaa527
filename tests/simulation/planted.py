"""Defects planted in the product, which have to be found and shrink: checks for the tests."""
