"""Metrics over time: rates and lags in a file, so that charts show the past."""
