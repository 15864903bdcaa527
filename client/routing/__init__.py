"""Where messages are sent and read: routes, their changes, targets, replicas, name server lists.

No connections: `mq.client.transport` fetches the routes.
"""
