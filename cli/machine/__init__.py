"""What commands do on this machine: files, stores, daemons, units."""
