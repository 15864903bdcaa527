"""Accounts and addresses as plain_acl.yml has them: what brokers and name servers ask who sends."""
