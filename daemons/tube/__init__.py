"""TubeMQ servers: a master and a broker for TubeMQ's own clients."""
