"""Access control as plain_acl.yml describes it: who may do what."""
