"""Overview pages that combine everything that brokers report about a group, a topic or a cluster.

A server that does not answer in time becomes a line in `failures`; the rest of the page is
complete.
"""
