"""TubeMQ's servers: a master and a broker that TubeMQ's own clients accept."""
