"""Metrics of a broker: imported only where somebody reads them."""
