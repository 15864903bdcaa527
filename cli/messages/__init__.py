"""Code for messages: select, follow, export, copy, resend."""
