"""What is done with messages: choosing, copying, exporting, importing, following, explaining."""
