"""What commands do with messages: choose, follow, export, copy, send again."""
