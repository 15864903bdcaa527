"""The name server: routes of topics to brokers."""
