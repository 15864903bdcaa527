"""Accounts and addresses of plain_acl.yml, by which brokers and name servers identify senders."""
