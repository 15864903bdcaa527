"""Access control according to plain_acl.yml."""
