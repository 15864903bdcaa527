"""Parts of a commit log's files: each record once, each damage once, for any split of the files."""

import random
import re
from itertools import pairwise
from pathlib import Path

import pytest

from mq.pipeline import damage
from mq.pipeline.errors import OptionError
from mq.pipeline.records import Records
from mq.pipeline.store_files import Damage, find_files, gaps, split
from mq.pipeline.store_scan import PartScan
from mq.pipeline.store_source import between
from tests.pipeline.logs import FILE_SIZE, TIME, Log, record

CUTS = (FILE_SIZE, 3000, 500, 97)
BODIES = [b"%03d" % n * (1 + n % 40) for n in range(200)]


def scan(folder: Path, most: int, *, verify: bool = True) -> tuple[list[bytes], list[Damage]]:
    """Return the bodies in order, and the damage, read in parts of this many bytes."""
    bodies: list[bytes] = []
    found: list[Damage] = []
    for file in find_files([str(folder)]):
        for part in split(file, most):
            for item in PartScan(part, verify=verify):
                if isinstance(item, Records):
                    ends = (item.body_at + item.body_length).tolist()
                    places = zip(item.body_at.tolist(), ends, strict=True)
                    bodies += [bytes(item.buffer[begin:end]) for begin, end in places]
                else:
                    found.append(item)
    return bodies, found


@pytest.mark.parametrize("most", CUTS)
@pytest.mark.parametrize("whole", [True, False])
def test_each_record_is_read_once_and_in_order_however_files_are_split(
    tmp_path: Path, most: int, whole: bool
) -> None:
    folder = Log(BODIES).write(tmp_path, whole=whole)
    if not whole:
        assert len(list(folder.iterdir())) > 2
    bodies, found = scan(folder, most)
    # The last file of a snapshot may end with its last record.
    assert bodies == BODIES
    assert found == []


def test_a_record_may_be_larger_than_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.pipeline.store_scan._CHUNK", 400)
    bodies = [b"x" * size for size in (10, 3000, 10, 500, 5000)]
    folder = Log(bodies).write(tmp_path)
    for most in CUTS:
        assert scan(folder, most) == (bodies, [])


@pytest.mark.parametrize("most", CUTS)
@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (0, r"a message of -?\d+ bytes where \d+ are left"),  # the highest bit of the size
        (4, r"magic 0x\w+ is not that of a message"),
        (28, r"its own offset in the log is -?\d+"),
        (84, r"its parts do not add up to its size"),  # the length of the body
        (90, r"the checksum of the body is wrong"),
    ],
)
def test_a_flipped_bit_loses_its_message_and_is_reported_once(
    tmp_path: Path, most: int, at: int, reason: str
) -> None:
    log = Log(BODIES)
    chosen = 57
    place = log.places[chosen]
    start = place - place % FILE_SIZE
    log.files[start][place - start + at] ^= 0x80
    bodies, found = scan(log.write(tmp_path), most)
    assert bodies == BODIES[:chosen] + BODIES[chosen + 1 :]
    ((path, position, size, why, is_end),) = found
    assert re.match(reason, why)
    assert (Path(path).name, position) == (f"{start:020d}", place - start)
    assert (size, is_end) == (log.places[chosen + 1] - place, False)


@pytest.mark.parametrize("most", CUTS)
def test_damage_loses_only_the_messages_that_it_touches(tmp_path: Path, most: int) -> None:
    chance = random.Random(most)
    for round_number in range(12):
        log = Log(BODIES[: chance.randrange(50, 200)])
        ends = [*log.places[1:], max(log.files) + len(log.files[max(log.files)])]
        touched = set()
        for _ in range(chance.randrange(1, 5)):
            start = chance.choice(list(log.files))
            begin = chance.randrange(len(log.files[start]))
            end = min(begin + chance.choice((1, 20, 700)), len(log.files[start]))
            old = bytes(log.files[start][begin:end])
            log.files[start][begin:end] = chance.randbytes(end - begin)
            changed = [n for n, byte in enumerate(log.files[start][begin:end]) if byte != old[n]]
            touched |= {start + begin + n for n in changed}
        bodies, found = scan(log.write(tmp_path / str(round_number)), most)
        for body, place, behind in zip(BODIES, log.places, ends, strict=False):
            if not any(place <= byte < behind for byte in touched):
                assert body in bodies
        assert len(set(found)) == len(found)
        for one, other in pairwise(sorted(found)):
            assert one.path != other.path or one.position + one.size <= other.position


@pytest.mark.parametrize("most", CUTS)
def test_without_verification_a_body_may_be_damaged(tmp_path: Path, most: int) -> None:
    log = Log([b"first", b"other", b"third"])
    log.files[0][log.places[1] + 88 : log.places[1] + 93] = b"wrong"
    folder = log.write(tmp_path)
    bodies, found = scan(folder, most)
    assert (bodies, len(found)) == ([b"first", b"third"], 1)
    assert scan(folder, most, verify=False) == ([b"first", b"wrong", b"third"], [])


@pytest.mark.parametrize("most", CUTS)
@pytest.mark.parametrize("kept", [4, 6, 8, 60, 100, 106])
def test_a_half_written_last_record_is_the_end_of_the_log(
    tmp_path: Path, most: int, kept: int
) -> None:
    log = Log([b"one", b"two"])
    whole = record(len(log.files[0]), b"0123456789")
    log.files[0] += whole[:kept]
    bodies, found = scan(log.write(tmp_path), most)
    assert bodies == [b"one", b"two"]
    assert [each.is_end for each in found] == [True]


def test_missing_and_short_files_are_reported(tmp_path: Path) -> None:
    log = Log(BODIES)
    assert len(log.files) > 3
    log.write(tmp_path)
    second, third, *_, last = sorted(log.files)[1:]
    (tmp_path / f"{second:020d}").unlink()
    with open(tmp_path / f"{third:020d}", "r+b") as file:
        file.truncate(5000)
    with open(tmp_path / f"{last:020d}", "r+b") as file:
        file.truncate(200)
    told = gaps(find_files([str(tmp_path)]))
    assert [(Path(each.path).name, each.position, each.size, each.is_end) for each in told] == [
        (f"{0:020d}", FILE_SIZE, FILE_SIZE, False),
        (f"{third:020d}", 5000, FILE_SIZE - 5000, False),
        (f"{last:020d}", 200, 0, True),
    ]
    assert set(told) < set(damage(str(tmp_path)))


def test_a_preallocated_file_is_not_part_of_the_log(tmp_path: Path) -> None:
    folder = Log([b"one"]).write(tmp_path)
    (folder / f"{FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    (folder / "lock").write_bytes(b"lock")
    assert [file.start for file in find_files([str(folder)])] == [0]
    assert scan(folder, 500) == ([b"one"], [])


def test_files_outside_the_times_are_skipped_with_a_margin_of_an_hour(tmp_path: Path) -> None:
    hour = 3_600_000
    log = Log([])
    for n in range(40):
        log.add(b"x" * 900, store_timestamp=TIME + n * hour)
    files = find_files([str(log.write(tmp_path))])
    first = [TIME + hour * log.places.index(file.start) for file in files]
    assert between(files, None, None) == files
    assert between(files, first[2], None) == files[1:]
    assert between(files, first[2] + hour + 1, None) == files[2:]
    assert between(files, None, first[2]) == files[:3]
    assert between(files, None, first[2] - hour) == files[:2]


@pytest.mark.parametrize("name", ["", "none"])
def test_a_folder_without_a_log_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match=r"option path: .*for example \.option\(.path., "):
        damage(str(tmp_path / name))


def test_a_store_may_be_on_several_disks(tmp_path: Path) -> None:
    log = Log(BODIES)
    for number, start in enumerate(sorted(log.files)):
        part = Log([])
        part.files = {start: log.files[start]}
        part.write(tmp_path / "ab"[number % 2] / "commitlog")
    paths = [str(tmp_path / "a"), str(tmp_path / "b" / "commitlog")]
    assert [file.start for file in find_files(paths)] == sorted(log.files)
    assert damage(*paths) == []
