"""Pulls messages from queues: subscriptions, pull loops, and `PullConsumer`, which has no group."""
