"""Code for this machine: files, stores, daemons, units."""
