"""A TubeMQ master: registrations, the balance of consumers, and the settings of brokers."""
