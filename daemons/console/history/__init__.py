"""Metrics over time: rates and lags, kept in a file, so that charts begin before a page opens."""
