"""SQL92 filters of consumers: the language, and the table of which group filters how."""
