"""What clusters are about: topics, consumer groups, their clients, accounts."""
