"""Administrative calls for snodes, the proxies between clients and brokers."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from mq.client.admin.base import AdminBase, read
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode, SnodeCode
from mq.protocol.command import Command

# A group without members: only the fact of an answer matters.
_NOBODY = {"consumerGroup": "MQ_DOCTOR_NOBODY"}


class SnodeAdmin(AdminBase):
    """The snodes that name servers know."""

    async def snodes(self, cluster: str | None = None) -> bodies.SnodeClusterInfo:
        """Return all snodes, or those of a cluster, from a name server."""
        if cluster is None:
            response, address = await self._ask_name_server(SnodeCode.GET_SNODE_CLUSTER_INFO)
        else:
            header = headers.GetSnodeInfoRequestHeader(snode_cluster_name=cluster)
            response, address = await self._ask_name_server(header)
        return read(bodies.SnodeClusterInfo.decode, response.body, address)

    async def reach_snode(self, address: str) -> None:
        """Return when the snode at `address` has answered, whatever the answer. Raises MQError."""
        await self.session.invoke(
            address, Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, _NOBODY), self.timeout
        )
