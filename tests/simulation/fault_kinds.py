"""The kinds of faults. The docstring of each is the line that a reader of a trace gets."""

import errno
import struct

from tests.simulation.datagrams import DatagramFaults
from tests.simulation.disk import Faults as DiskFaults
from tests.simulation.faults import End, Strike, back, kind
from tests.simulation.inode import Inode
from tests.simulation.world import Machine, Work

# Somewhere among so many operations on files it happens.
_OPERATIONS = 40
# A start has more of them, and a power cut after a power cut may come at any.
_OPERATIONS_OF_START = 120
_MOST_STARTS = 3


def _back(strike: Strike) -> End:
    return lambda: back(strike.target)


def _arm(strike: Strike, operations: int, work: Work) -> None:
    """Have something happen in the middle of an operation on a file, some time from now."""
    process = strike.target.process
    if process is not None and process.is_alive:
        process.operations_left = strike.chance.randint(1, operations)
        process.on_last_operation = work


def _cut_power(strike: Strike) -> None:
    strike.injector.loses(strike.target, strike.fault.number)
    strike.target.lose_power()


# processes --------------------------------------------------------------------------------------


@kind("all")
def kill(strike: Strike) -> End:
    """{it} gets SIGKILL; afterwards it is started again."""
    strike.target.kill()
    return _back(strike)


@kind()
def kill_at_a_file(strike: Strike) -> End:
    """{it} gets SIGKILL in the middle of an operation on a file; afterwards it is started again."""
    _arm(strike, _OPERATIONS, strike.target.kill)
    return _back(strike)


@kind("all")
def terminate(strike: Strike) -> End:
    """{it} gets SIGTERM; afterwards it is started again."""
    strike.target.terminate()
    return _back(strike)


@kind()
def restart(strike: Strike) -> None:
    """{it} gets SIGTERM and is started again as soon as it has stopped."""
    strike.target.terminate()
    strike.target.start()


@kind()
def kill_amid_the_stop(strike: Strike) -> End:
    """{it} gets SIGTERM, and SIGKILL in the middle of stopping; afterwards it is started again."""
    strike.target.terminate()
    _arm(strike, _OPERATIONS, strike.target.kill)
    return _back(strike)


@kind()
def power_cut_amid_the_stop(strike: Strike) -> End:
    """{it} gets SIGTERM, and its machine loses power in the middle of stopping."""
    strike.target.terminate()
    _arm(strike, _OPERATIONS, lambda: _cut_power(strike))
    return _back(strike)


@kind()
def kill_amid_the_start(strike: Strike) -> End:
    """{it} gets SIGKILL, and again in the middle of the next starts."""
    strike.target.kill()
    return _again_amid_start(strike, strike.target.kill)


@kind()
def power_cut_amid_the_start(strike: Strike) -> End:
    """{it} loses the power of its machine, and again in the middle of the next starts."""
    _cut_power(strike)
    return _again_amid_start(strike, lambda: _cut_power(strike))


def _again_amid_start(strike: Strike, work: Work) -> End:
    left = strike.chance.randint(1, _MOST_STARTS)
    world, is_over = strike.world, False

    def start() -> None:
        nonlocal left
        if is_over:
            return
        left -= 1
        back(strike.target)
        if left >= 0:
            _arm(strike, _OPERATIONS_OF_START, ends)

    def ends() -> None:
        world.at(world.now + strike.chance.uniform(0.01, 0.5), start)
        work()  # last: it does not come back where the process that runs is ended

    def over() -> None:
        nonlocal is_over
        is_over = True
        back(strike.target)

    world.at(world.now + strike.chance.uniform(0.01, 0.5), start)
    return over


@kind("all")
def stop(strike: Strike) -> End | None:
    """{it} stands still (SIGSTOP), then goes on."""
    process = strike.target.process
    if process is None:
        return None
    process.stop()
    return process.go_on


@kind("all")
def power_cut(strike: Strike) -> End:
    """{it} loses the power of its machine: what was not synced may be gone, peers are not told."""
    _cut_power(strike)
    return _back(strike)


@kind()
def power_cut_at_a_file(strike: Strike) -> End:
    """{it} loses the power of its machine in the middle of an operation on a file."""
    _arm(strike, _OPERATIONS, lambda: _cut_power(strike))
    return _back(strike)


@kind("brokers", is_drawn=False)
def loss_of_a_master(strike: Strike) -> End:
    """{it} is destroyed with its disk; afterwards a slave of it is made the master by hand."""
    return strike.injector.destroys(strike.target)


@kind("brokers", is_drawn=False)
def loss_of_a_member(strike: Strike) -> End:
    """{it} is destroyed with its disk, if another member of its set is in sync."""
    return strike.injector.destroys(strike.target)


# the network ------------------------------------------------------------------------------------


def _peers(strike: Strike) -> tuple[str, list[Machine]]:
    """From whom something is cut off."""
    groups = strike.injector.cluster.circles()
    who, machines = strike.chance.choice([*groups, groups[0]])
    if strike.chance.random() < 0.3:
        who = f"some of {who}"
        machines = [one for one in machines if strike.chance.random() < 0.5]
    return who, [one for one in machines if one is not strike.machine]


def _cut(strike: Strike, *, to: bool, back: bool) -> End:
    who, machines = _peers(strike)
    own = strike.machine.address
    links = [(own, one.address) for one in machines if to]
    links += [(one.address, own) for one in machines if back]
    way = "neither way" if to and back else "not to them" if to else "not from them"
    names = ", ".join(one.name for one in machines) or "nobody"
    strike.world.tell(
        f"FAULT {strike.fault.number}", f"nothing passes, {way}, between it and {who}: {names}"
    )
    return strike.world.network.cut(links)


@kind("all")
def partition(strike: Strike) -> End:
    """{it} and some other machines cannot reach each other."""
    return _cut(strike, to=True, back=True)


@kind("all")
def one_way_partition(strike: Strike) -> End:
    """{it} cannot reach some other machines, or they cannot reach it, in one direction only."""
    to = strike.chance.random() < 0.5
    return _cut(strike, to=to, back=not to)


@kind("all")
def resets(strike: Strike) -> None:
    """{it} has some of its connections reset; both ends are notified."""
    for end in strike.world.network.of_machine(strike.machine.address):
        if strike.chance.random() < 0.7:
            strike.world.network.reset(end)


@kind("all")
def half_open_connections(strike: Strike) -> End:
    """{it} has connections that the network forgets: all bytes vanish, and no end is notified."""
    network, reset_later = strike.world.network, strike.chance.random() < 0.5
    forgotten = [
        end for end in network.of_machine(strike.machine.address) if strike.chance.random() < 0.7
    ]
    for end in forgotten:
        network.forget(end)

    def over() -> None:
        if reset_later:  # it answers that it does not know them
            for end in forgotten:
                network.reset(end)

    return over


@kind("all")
def slow_network(strike: Strike) -> End:
    """{it} has a network with long delays that differ by connection, so messages overtake each
    other.
    """
    longest = strike.chance.choice((0.05, 0.3, 1.0))
    return strike.injector.overlays.delay(strike, (0.0, longest))


@kind()
def bad_datagrams(strike: Strike) -> End:
    """{it} has a network that loses, duplicates and delays datagrams."""
    chance = strike.chance
    faults = DatagramFaults(chance.choice((0.0, 0.3, 1.0)), chance.choice((0.0, 0.5)), 2.0)
    return strike.injector.overlays.datagrams(strike, faults)


# clocks -----------------------------------------------------------------------------------------


@kind("all")
def clock_jump(strike: Strike) -> None:
    """{it} has its clock set forward or back."""
    seconds = strike.chance.choice((-30.0, -2.0, 2.0, 30.0))
    strike.world.tell(f"FAULT {strike.fault.number}", f"its clock jumps by {seconds:+g} s")
    strike.machine.set_clock(by=seconds)


@kind("all")
def clock_drift(strike: Strike) -> End:
    """{it} has a clock that runs too fast or too slow, and is corrected afterwards."""
    drift = strike.chance.choice((-0.2, -0.01, 0.01, 0.2))
    strike.world.tell(f"FAULT {strike.fault.number}", f"its clock gains {drift:+g} s a second")
    began = strike.world.now
    strike.machine.set_clock(drift=drift)

    def over() -> None:
        strike.machine.set_clock(drift=0.0, by=-drift * (strike.world.now - began))

    return over


def _set_for_a_while(strike: Strike, seconds: float) -> End:
    strike.world.tell(f"FAULT {strike.fault.number}", f"its clock is set by {seconds:+g} s")
    machine = strike.machine
    machine.set_clock(by=seconds)
    return lambda: machine.set_clock(by=-seconds)


@kind("brokers", is_drawn=False)
def clock_ahead(strike: Strike) -> End:
    """{it} has a clock that is minutes ahead, and is corrected afterwards."""
    return _set_for_a_while(strike, strike.chance.choice((120.0, 600.0, 1500.0)))


@kind("brokers", is_drawn=False)
def clock_behind(strike: Strike) -> End:
    """{it} has a clock that is minutes late, and is corrected afterwards."""
    return _set_for_a_while(strike, strike.chance.choice((-120.0, -600.0, -1500.0)))


# disks ------------------------------------------------------------------------------------------


@kind()
def full_disk(strike: Strike) -> End:
    """{it} finds its disk full."""
    return strike.injector.overlays.disk(strike, DiskFaults(is_full=True))


@kind()
def slow_disk(strike: Strike) -> End:
    """{it} has a disk on which an fsync takes up to a second."""
    return strike.injector.overlays.disk(strike, DiskFaults(sync_seconds=(0.05, 1.0)))


@kind()
def short_writes(strike: Strike) -> End:
    """{it} has a disk that sometimes writes only a part."""
    return strike.injector.overlays.disk(strike, DiskFaults(writes_short=0.3))


_WRITES = ("pwrite", "ftruncate", "posix_fallocate", "rename", "link", "unlink", "mkdir")


def _failing(strike: Strike, names: tuple[str, ...], probability: float) -> End:
    def fails(name: str, path: str) -> int:
        if name in names and strike.chance.random() < probability:
            return errno.EIO
        return 0

    return strike.injector.overlays.disk(strike, DiskFaults(fails=fails))


@kind()
def failing_reads(strike: Strike) -> End:
    """{it} has a disk on which some reads fail (EIO)."""
    return _failing(strike, ("pread",), 0.2)


@kind()
def failing_writes(strike: Strike) -> End:
    """{it} has a disk on which some writes and renamings fail (EIO)."""
    return _failing(strike, _WRITES, 0.2)


@kind()
def failing_syncs(strike: Strike) -> End:
    """{it} has a disk on which some fsyncs fail (EIO), until it is repaired and rebooted."""
    over = _failing(strike, ("fsync", "fdatasync"), 0.5)

    def boot() -> None:
        over()
        _cut_power(strike)  # data of a failed fsync is lost
        back(strike.target)

    return boot


@kind("brokers", is_drawn=False)
def bit_rot(strike: Strike) -> None:
    """{it} has a bit of its log changed on the disk."""
    chance, disk = strike.chance, strike.machine.disk
    paths = [path for path, one in disk.files() if "/commitlog/" in path and one.length]
    if not paths:
        return
    logs = {path: inode for path, inode in disk.files() if path in paths}
    path = chance.choice(paths)
    used = len(logs[path].content().rstrip(b"\0"))
    if used:
        position = chance.randrange(used)
        strike.injector.rots(strike.target, bodies_from(logs, path, position))
        disk.rot(logs[path], position, chance.randrange(8))


# Of a record: size, magic, checksum of the body, and so on; the length of its body.
_HEAD = struct.Struct(">iiI72xi")


def bodies_from(logs: dict[str, Inode], first: str, position: int) -> list[bytes]:
    """The bodies of a log from the record at this position of its file ``first`` on."""
    found = []
    for path in sorted(path for path in logs if path >= first):
        content, at = bytes(logs[path].content()), 0
        while at + _HEAD.size <= len(content):
            size, _, _, length = _HEAD.unpack_from(content, at)
            if size <= 0:
                break
            if path > first or at + size > position:
                found.append(content[at + _HEAD.size : at + _HEAD.size + length])
            at += size
    return found
