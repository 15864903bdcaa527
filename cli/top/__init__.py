"""What `mq top` shows: looks at a cluster, what two of them tell, and the screen."""
