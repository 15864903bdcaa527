"""The objects in clusters: topics, consumer groups, their clients, accounts."""
