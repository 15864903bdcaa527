"""SQL92 filters of consumers: the language, and the table of filters by topic and group."""
