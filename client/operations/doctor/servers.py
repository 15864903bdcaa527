"""Checks of name servers and brokers: reachability, agreement, free space."""

from collections import Counter
from collections.abc import Mapping

from mq.client.operations.cluster_snapshot import reason
from mq.client.operations.doctor.examination import Examination
from mq.client.operations.doctor.finding import Severity
from mq.client.operations.doctor.sets import check_sets
from mq.client.operations.plurals import counted
from mq.client.operations.uptime import seconds_up

_RATIOS = ("commitLogDiskRatio", "consumeQueueDiskRatio")
_LOOPBACK = ("127.", "localhost:", "[::1]")


async def check_name_servers(examination: Examination) -> None:
    """Check that each name server answers, and that they know the same brokers."""
    errors = await examination.look_at_name_servers()
    for address, error in errors.items():
        examination.say(
            "name-server",
            Severity.CRITICAL,
            address,
            reason(error),
            "start it, or take it out of the list of name servers",
        )
    everybody = set(examination.brokers)
    for address, info in examination.clusters.items():
        known = {a for b in info.broker_addr_table.values() for a in b.broker_addrs.values()}
        missing = sorted(everybody - known)
        if missing:
            examination.say(
                "name-server",
                Severity.CRITICAL,
                address,
                f"does not know {counted(len(missing), 'broker')} that others know: "
                f"{', '.join(missing)}",
                "give those brokers all name servers (namesrvAddr)",
            )
        else:
            examination.say(
                "name-server", Severity.OK, address, f"knows {counted(len(known), 'broker')}"
            )


async def check_snodes(examination: Examination) -> None:
    """Check that each snode answers, and that every name server knows it."""
    known = {address: info.snode_table or {} for address, info in examination.clusters.items()}
    snodes = {name: one for table in known.values() for name, one in table.items()}
    _, errors = await examination.each(
        {one.address for one in snodes.values()}, examination.admin.reach_snode
    )
    for name, one in sorted(snodes.items()):
        missing = sorted(server for server, table in known.items() if name not in table)
        subject = f"{name} ({one.address})"
        if one.address in errors:
            examination.say(
                "snode",
                Severity.CRITICAL,
                subject,
                reason(errors[one.address]),
                "clients cannot reach it either: check its process and snodeIP1",
            )
        elif missing:
            examination.say(
                "snode",
                Severity.WARNING,
                subject,
                f"is not known to {', '.join(missing)}",
                "give it all name servers (namesrvAddr)",
            )
        else:
            examination.say("snode", Severity.OK, subject, "answers")


async def check_brokers(examination: Examination) -> None:
    """Check that each broker answers, with a correct clock, free disk space and no backlog."""
    brokers = examination.brokers
    if not brokers and examination.clusters:
        examination.say(
            "broker",
            Severity.CRITICAL,
            "cluster",
            "no broker is registered",
            "start one: mq broker",
        )
    answers, errors = await examination.runtime()
    for address, error in errors.items():
        name, broker_id = brokers[address]
        examination.say(
            "broker",
            Severity.CRITICAL,
            address,
            f"{name} ({broker_id}) {reason(error)}",
            "clients cannot reach it either: check its process and brokerIP1",
        )
    for address, runtime in answers.items():
        _check_clock(examination, address, runtime)
        _check_disks(examination, address, runtime)
        _check_backlog(examination, address, runtime)
        _check_own_work(examination, address, runtime)
        _check_address(examination, address)
    _check_versions(examination, answers)
    await check_sets(examination, answers)


def _check_clock(examination: Examination, address: str, runtime: Mapping[str, str]) -> None:
    """Derive the broker's time, to the second, from its start time and uptime."""
    up = seconds_up(runtime)
    boot = runtime.get("bootTimestamp", "")
    if up is None or not boot.isdecimal():
        return
    its_time = int(boot) / 1000 + up
    off = its_time - examination.now
    if abs(off) > examination.limits.skew + 1:
        examination.say(
            "clock",
            Severity.WARNING,
            address,
            f"its clock is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} this one",
            "let both keep time (chrony, ntpd): delays and look-ups by time depend on it",
        )
    else:
        examination.say("clock", Severity.OK, address, "its clock is right")


def _check_disks(examination: Examination, address: str, runtime: Mapping[str, str]) -> None:
    warning, critical = examination.limits.disk
    fullest = max((_number(runtime.get(name)) for name in _RATIOS), default=0.0) * 100
    if fullest <= 0:
        return
    severity = Severity.OK
    if fullest >= warning:
        severity = Severity.CRITICAL if fullest >= critical else Severity.WARNING
    hint = (
        "" if severity is Severity.OK else "delete what is not needed, or shorten fileReservedTime"
    )
    examination.say("disk", severity, address, f"the fullest disk is {fullest:.0f} % full", hint)


def _check_backlog(examination: Examination, address: str, runtime: Mapping[str, str]) -> None:
    """Check for stored messages that are not dispatched to queues yet."""
    behind = _number(runtime.get("dispatchBehindBytes"))
    if behind > 64 << 20:
        examination.say(
            "dispatch",
            Severity.WARNING,
            address,
            f"{behind / (1 << 20):.0f} MB of messages are not in any queue yet",
            "its disk is too slow, or it has just started",
        )


def _check_own_work(examination: Examination, address: str, runtime: Mapping[str, str]) -> None:
    """Check for failures of background tasks, which Java's brokers do not report."""
    failures = int(_number(runtime.get("taskFailures")))
    if failures:
        examination.say(
            "task",
            Severity.WARNING,
            address,
            f"{counted(failures, 'error')} in background tasks, the last: "
            f"{runtime.get('lastTaskFailure', 'unknown')}",
            "each began again; report what its log says, it is a defect of mq",
        )
    aside = int(_number(runtime.get("setAside")))
    if aside:
        examination.say(
            "set-aside",
            Severity.WARNING,
            address,
            f"{counted(aside, 'message')} could not be handled (set aside)",
            "see config/setAside.jsonl in its store",
        )


def _check_address(examination: Examination, address: str) -> None:
    if address.startswith(_LOOPBACK) and not all(
        server.startswith(_LOOPBACK) for server in examination.session.name_servers
    ):
        examination.say(
            "address",
            Severity.CRITICAL,
            address,
            "is registered at a name server of another host, but reachable only from its own host",
            "set brokerIP1 to the address of its host",
        )


def _check_versions(examination: Examination, answers: Mapping[str, Mapping[str, str]]) -> None:
    versions = Counter(runtime.get("brokerVersionDesc", "unknown") for runtime in answers.values())
    if len(versions) > 1:
        shown = ", ".join(f"{count} x {version}" for version, count in versions.most_common())
        examination.say(
            "version",
            Severity.WARNING,
            "brokers",
            f"run several releases: {shown}",
            "update the others",
        )


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
