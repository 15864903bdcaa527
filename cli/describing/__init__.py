"""The layout of the `describe` pages of groups, topics and clusters."""
