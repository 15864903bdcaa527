"""Who may do what: accounts, sessions, tokens, and what every request has to pass."""
