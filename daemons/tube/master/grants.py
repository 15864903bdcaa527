"""The access data of a master for a broker: visit tokens, and consume rights of its topics."""

import hashlib
import json

from mq.daemons.tube.master.catalog import Catalog
from mq.daemons.tube.master.storage import Changes
from mq.daemons.tube.master.tokens import VisitTokens
from mq.protocol.tube.grants import Grants, Rights, TopicRight, rights_json


class BrokerGrants:
    """Builds them. Without ``authorizes`` brokers get tokens and no rights."""

    def __init__(self, catalog: Catalog, tokens: VisitTokens, *, authorizes: bool) -> None:
        self._catalog = catalog
        self._tokens = tokens
        self._authorizes = authorizes
        self._rights: dict[int, tuple[str, Rights]] = {}  # by broker, until the catalog changes
        catalog.on_change.append(self._changed)

    def for_broker(self, broker_id: int, known_id: str) -> Grants:
        """Return the access data of a broker, which has the rights of ``known_id`` already."""
        produce = tuple(self._tokens.of(produces=True))
        consume = tuple(self._tokens.of(produces=False))
        if not self._authorizes:
            return Grants(produce, consume)
        if broker_id not in self._rights:
            rights = self._rights_of(broker_id)
            text = json.dumps(rights_json(rights)).encode()
            self._rights[broker_id] = hashlib.sha256(text).hexdigest()[:32], rights
        rights_id, rights = self._rights[broker_id]
        return Grants(produce, consume, rights_id, None if known_id == rights_id else rights)

    def _changed(self, _: Changes) -> None:
        self._rights.clear()

    def _rights_of(self, broker_id: int) -> Rights:
        """Return the rights for each topic of a broker with restricted consumption."""
        found = {}
        for deployed in self._catalog.of_broker(broker_id):
            topic = deployed.topic
            control = self._catalog.topic_control(topic)
            groups = self._catalog.consume_controls(topic)
            if control is not None and control.auth_enabled:
                found[topic] = TopicRight(
                    {
                        one.group: frozenset(one.filters) if one.filter_enabled else None
                        for one in groups
                        if one.enabled
                    }
                )
            elif barred := frozenset(one.group for one in groups if not one.enabled):
                found[topic] = TopicRight(barred=barred)
        return found
