"""The implementation of `mq top`: samples of a cluster, rates between them, and the screen."""
