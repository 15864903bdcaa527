"""Authentication and authorization: accounts, sessions, tokens, and the checks of every request."""
