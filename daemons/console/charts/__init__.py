"""Charts: SVG drawn by the server, with the numbers in a table."""
