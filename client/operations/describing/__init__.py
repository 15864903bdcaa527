"""Pages that put together all that brokers say of a group, a topic or a cluster.

Whatever does not answer in time is a line of `failures`, and the rest of the page is there.
"""
