"""What the pages of a group, a topic and a cluster look like."""
