"""Topics, groups and accounts declared in a file, compared with a cluster and applied."""
