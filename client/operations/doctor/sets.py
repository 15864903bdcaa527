"""Checks of replica sets, each a master and its slaves: whether they can keep their guarantees."""

from collections.abc import Mapping, Set

from mq.client.operations.cluster_snapshot import reason
from mq.client.operations.doctor.examination import Examination
from mq.client.operations.doctor.finding import Severity
from mq.protocol.bodies.controller import EpochEntryCache
from mq.protocol.names import MASTER_ID

_SYNC_MASTER = "SYNC_MASTER"
_SLAVE = "SLAVE"
# A slave with a larger lag does not count for a SYNC_MASTER (haSlaveFallbehindMax).
_MOST_BEHIND = 256 << 20


async def check_sets(examination: Examination, answers: Mapping[str, Mapping[str, str]]) -> None:
    """Check that each replica set has one master with the slaves that it needs, and that they
    follow it.

    `answers` is the runtime info of the brokers by address.
    """
    acting = {a for a, runtime in answers.items() if runtime.get("actingMaster") == "true"}
    _check_masters(examination, acting)
    _check_rivals(examination)
    configs, errors = await examination.each(answers, examination.admin.broker_config)
    for address, error in errors.items():
        told = f"its role is not known: {reason(error)}"
        examination.say("replica", Severity.UNKNOWN, address, told)
    _check_roles(examination, {a: config.get("brokerRole", "") for a, config in configs.items()})
    _check_lag(examination, answers)
    controlled = [
        a for a, config in configs.items() if config.get("enableControllerMode") == "true"
    ]
    epochs, _ = await examination.each(controlled, examination.admin.epochs)
    _check_epochs(examination, epochs)


def _check_masters(examination: Examination, acting: Set[str]) -> None:
    """`acting` are the addresses of slaves that act as masters (enableSlaveActingMaster)."""
    for name, broker in sorted(examination.info.broker_addr_table.items()):
        deputies = [a for _, a in sorted(broker.broker_addrs.items()) if a in acting]
        if MASTER_ID not in broker.broker_addrs:
            acts = f"; its slave at {deputies[0]} acts as the master" if deputies else ""
            examination.say(
                "master",
                Severity.CRITICAL,
                name,
                f"has no master: it can be read and not written{acts}",
                "start its master",
            )
        elif deputies:
            examination.say(
                "acting-master",
                Severity.WARNING,
                deputies[0],
                f"acts as the master of {name}, which has one: what waits is delivered twice",
                "does it reach its master, and the name servers? see its log",
            )


def _check_rivals(examination: Examination) -> None:
    """Find several masters of one name: a name server stores one address per id, so they appear as
    name servers that disagree.
    """
    masters: dict[str, set[str]] = {}
    for info in examination.clusters.values():
        for name, broker in info.broker_addr_table.items():
            if MASTER_ID in broker.broker_addrs:
                masters.setdefault(name, set()).add(broker.broker_addrs[MASTER_ID])
    for name, addresses in sorted(masters.items()):
        if len(addresses) > 1:
            examination.say(
                "two-masters",
                Severity.CRITICAL,
                name,
                f"has several masters, as name servers say: {', '.join(sorted(addresses))}",
                "stop all but the one that has what was acknowledged, and start those as slaves",
            )


def _check_roles(examination: Examination, roles: Mapping[str, str]) -> None:
    """Compare the roles that brokers report with the ids under which they are registered."""
    replicas = {name for name, broker_id in examination.brokers.values() if broker_id != MASTER_ID}
    for address, role in roles.items():
        name, broker_id = examination.brokers[address]
        if role == _SYNC_MASTER and broker_id == MASTER_ID and name not in replicas:
            examination.say(
                "sync-master",
                Severity.CRITICAL,
                address,
                f"{name} is a SYNC_MASTER without a slave: senders get SLAVE_NOT_AVAILABLE",
                "start its slave, or set brokerRole=ASYNC_MASTER",
            )
        elif role and (role == _SLAVE) != (broker_id != MASTER_ID):
            examination.say(
                "role",
                Severity.CRITICAL,
                address,
                f"is registered as {name} ({broker_id}), and says that it is {role}",
                "a master has brokerId 0, a slave another: stop it, and check its settings",
            )


def _check_epochs(examination: Examination, epochs: Mapping[str, EpochEntryCache]) -> None:
    """Check, in sets that controllers manage, that each slave has the epochs of its master's
    log.
    """
    masters = {
        name: epochs[address]
        for address, (name, broker_id) in examination.brokers.items()
        if broker_id == MASTER_ID and address in epochs
    }
    for address, found in epochs.items():
        name, broker_id = examination.brokers[address]
        if broker_id == MASTER_ID or name not in masters:
            continue
        known = {(entry.epoch, entry.start_offset) for entry in masters[name].epoch_list}
        # earlier epochs were in deleted files
        first = min((epoch for epoch, _ in known), default=0)
        others = [
            entry
            for entry in found.epoch_list
            if entry.epoch >= first and (entry.epoch, entry.start_offset) not in known
        ]
        if others:
            entry = others[0]
            examination.say(
                "epochs",
                Severity.CRITICAL,
                f"{name} ({broker_id})",
                f"has epoch {entry.epoch} from {entry.start_offset} on, which its master has not",
                "it does not follow: see its log for the part that it must truncate",
            )


def _check_lag(examination: Examination, answers: Mapping[str, Mapping[str, str]]) -> None:
    """Check the lag of slaves, by the ends of the logs."""
    ends: dict[str, dict[int, int]] = {}
    for address, runtime in answers.items():
        name, broker_id = examination.brokers[address]
        text = runtime.get("commitLogMaxOffset", "")
        if text.isdecimal():
            ends.setdefault(name, {})[broker_id] = int(text)
    for name, by_id in sorted(ends.items()):
        for broker_id, end in by_id.items():
            behind = by_id.get(MASTER_ID, end) - end
            if broker_id == MASTER_ID:
                continue
            subject = f"{name} ({broker_id})"
            if behind > _MOST_BEHIND:
                examination.say(
                    "replica",
                    Severity.WARNING,
                    subject,
                    f"is {behind / (1 << 20):.0f} MB behind its master",
                    "see: mq haStatus; is haListenPort reachable?",
                )
            elif MASTER_ID in by_id:
                examination.say("replica", Severity.OK, subject, "follows its master")
