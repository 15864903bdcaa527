"""Requests that a slave refuses, so that it never has data that its master lacks.

The codes and texts are those of Java's slaves (4.9.8). A slave serves all other requests from its
own data, which may be some seconds old.
"""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store_config import BrokerRole
from mq.daemons.dispatch import Refused
from mq.protocol.codes import ResponseCode

_MODIFIES = (
    "Can't modify topic or subscription group from slave broker, please execute it from master "
    "broker."
)
_STORES = (
    "this broker is a slave (brokerRole=SLAVE): it stores what its master has; send to the master"
)


def is_slave(settings: BrokerSettings) -> bool:
    """Whether the broker follows a master."""
    return settings.store.broker_role is BrokerRole.SLAVE


def has_acting_slaves(settings: BrokerSettings) -> bool:
    """Whether the broker belongs to a replica set in which a slave may act as the master. With
    controllers, which elect a master, no slave does.
    """
    broker = settings.broker
    return broker.enable_slave_acting_master and not broker.enable_controller_mode


def may_act_as_master(settings: BrokerSettings) -> bool:
    """Whether the broker is a slave that may act as the master."""
    return is_slave(settings) and has_acting_slaves(settings)


def check_may_modify(settings: BrokerSettings) -> None:
    """Refuse a change of topics or groups on a slave, which copies those of its master.

    Source: AdminBrokerProcessor.validateSlave.
    """
    if is_slave(settings):
        raise Refused(ResponseCode.SYSTEM_ERROR, _MODIFIES)


def check_takes_messages(settings: BrokerSettings) -> None:
    """Refuse a message on a slave (DefaultMessageStore.checkStoreStatus)."""
    if is_slave(settings):
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, _STORES)


def check_takes_back(settings: BrokerSettings) -> None:
    """Refuse a message that a consumer sends back to a slave.

    The code differs from that of a send, and the remark is the name of the status
    (SendMessageProcessor.asyncConsumerSendMsgBack).
    """
    if is_slave(settings):
        raise Refused(ResponseCode.SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE")


def check_ends_transactions(settings: BrokerSettings) -> None:
    """Refuse the end of a transaction on a slave (EndTransactionProcessor.processRequest)."""
    if is_slave(settings):
        raise Refused(
            ResponseCode.SLAVE_NOT_AVAILABLE,
            "this broker is a slave: transactions end at its master",
        )


def check_recalls(settings: BrokerSettings) -> None:
    """Refuse to recall a timed message on a slave (RecallMessageProcessor of 5.3)."""
    if is_slave(settings):
        raise Refused(
            ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"
        )
