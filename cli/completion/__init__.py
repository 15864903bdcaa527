"""`mq __complete WORD…`: candidates for the shells' completion scripts under `completions/`."""
