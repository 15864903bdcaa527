"""Charts: pictures drawn by the server, with the numbers beside them."""
