"""Every header of a request or response, declared once by subject."""
