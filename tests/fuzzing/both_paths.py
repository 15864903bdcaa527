"""Sends handled natively and by Python: `python -m tests.fuzzing.both_paths [--cases 1000000]`.

A seed is some hundred cases, given to a pair of brokers: each case is a buffer of frames, valid,
unusual or damaged, which may arrive in pieces, or belong to many connections in one turn of the
loop. Log, queues, index and replies of both must be equal, byte for byte. --first continues where a
run was ended; a failing seed is reported with its input. --library uses another build of the native
path: that of `make fuzz-native` checks each memory access, and each sum.
"""

import argparse
import json
import logging
import multiprocessing
import os
import random
import struct
import sys
import tempfile
import time
import traceback
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

CASES = 500  # of a seed
NAME = "mq.protocol.native._native"
# Files roll in the middle of the input; a slot of the index holds several keys; some bodies are too
# large, and some properties too long for a record.
SETTINGS = {"mappedFileSizeCommitLog": "100000", "maxHashSlotNum": "50", "maxIndexNum": "1000"}
SETTINGS |= {"maxMessageSize": "4096", "mappedFileSizeConsumeQueue": "2000"}

_WORDS = (
    "v",
    "true",
    "false",
    "T",
    "TagA",
    "k1 k2",
    "k1  k2 ",
    "é😀",
    "0",
    "-1",
    "%RETRY%g",
    "a\x00b",
    " ",
)
_NAMES = ("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "a", "b", "é", "CLUSTER", "DELAY", "TIMER_D",
          "REAL_QID", "TRAN_MSG", "TIMER_DELIVER_MS", "CLUSTE", "WAITING")  # fmt: skip
_NUMBERS = (0, 1, -1, 3, 7, 16, 255, 1 << 15, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) - 1,
            (1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1, 10**30)  # fmt: skip
_TEXTS = ("+1", " 1", "1 ", "1_0", "01", "-0", "1e3", "1.0", "", "null", "0x10", "٣")
_ESCAPES = (
    "\\u0041",
    "\\/",
    "\\ud83d\\ude00",
    "\\ud800",
    "\\u0000",
    "\\n",
    "\\x",
    "\\u00e9",
    "\\\\",
)


# Batches of prepared messages have these properties, and so many of their halves are remembered.
_OF_HALVES = "TRAN_MSG\x01true\x02PGROUP\x01P"
_MOST_HALVES = 100
_TOGETHER = 0.1  # of the cases come on many connections
# Bytes in one turn: with more some would wait for the next, or the batch be written before.
_MOST_IN_TURN = 150_000


class Failure(NamedTuple):
    """A seed whose brokers differed, in which case, and how."""

    seed: int
    case: int
    text: str


class Cases(random.Random):
    """Buffers of a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._prepared: set[int] = set()  # opaques of batches that become halves
        self._halves: list[tuple[int, int]] = []  # where there are some

    def answered(self, replies: bytes) -> None:
        """Record the replies of both: later cases may end the stored half messages."""
        from tests.daemons.broker.native_pair import places_in

        self._halves += places_in(replies, self._prepared.__contains__)
        del self._halves[:-_MOST_HALVES]

    def case(self) -> list[bytes]:
        """A buffer of frames, in the pieces in which it comes."""
        count = 150 if self.random() < 0.01 else self.choice((1, 1, 2, 3, 6))
        data = b"".join(self.frame() for _ in range(count))
        if self.random() < 0.2:
            data = self._damaged(data)
        pieces = sorted(self.randrange(len(data) + 1) for _ in range(self.choice((0, 0, 0, 1, 2))))
        return [
            data[start:end] for start, end in zip([0, *pieces], [*pieces, len(data)], strict=True)
        ]

    def together(self) -> list[tuple[int, bytes | None]]:
        """What comes on several connections in one turn: by their numbers, None for an end."""
        from tests.daemons.broker.native_pair import TO_EACH_QUEUE

        count, left = self.choice((1, 2, 3, 5, 20, 80)), _MOST_IN_TURN
        of_each: dict[int, list[bytes | None]] = {}
        for number in range(1, 1 + count):
            pieces = of_each[number] = []
            for _ in range(self.choice((1, 1, 1, 2, 4))):
                some = [self.frame()] if self.random() < 0.7 else self.case()
                left -= sum(map(len, some))
                pieces += some if left > 0 else []
            if self.random() < 0.1:
                pieces.append(None)
        numbers = [number for number, pieces in of_each.items() for _ in pieces]
        self.shuffle(numbers)
        given = [(number, of_each[number].pop(0)) for number in numbers]
        return [(0, TO_EACH_QUEUE), *given] if self.random() < 0.7 else given

    def frame(self) -> bytes:
        """A send, mostly as a client writes it."""
        from tests.daemons.broker.native_pair import FIELDS, HEADER, in_binary, in_words

        kind = self.random()
        if kind < 0.1 and self._halves:
            return self._end_of_halves()
        fields: dict[str, object] = dict(FIELDS)
        header: dict[str, object] = {**HEADER, "opaque": self.randrange(1 << 31)}
        fields["b"] = self.choice(("T", "T", "T", f"T{self.randrange(20)}"))
        fields["e"] = str(self.choice((0, 1, 2, 3, 3, 2, 1, 0, -1, 4)))
        fields["i"] = self._properties()
        if self.random() < 0.25:
            header["code"], fields["m"] = 320, "true"
            fields["i"] = self.choice(
                ("", "WAIT\x01false\x02UNIQ_KEY\x01A", "WAIT\x01true", fields["i"])
            )
        if kind > 0.88:
            self._prepare(header, fields)
        odd = self.random() < 0.12
        if odd:
            self._make_odd(header, fields)
        is_batch = fields.get("m") == "true"
        body = self._batch() if is_batch else self._body()
        whole = {**header, "extFields": fields}
        form = self.random()
        if form < 0.2:
            whole = in_words(whole)
        if 0.1 < form < 0.3:
            return in_binary(whole, body)
        text = self._text(whole, odd)
        return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body

    def _prepare(self, header: dict[str, object], fields: dict[str, object]) -> None:
        """Make it a batch of prepared messages."""
        self._prepared.add(int(str(header["opaque"])))
        header["code"], fields["m"] = 320, "true"
        fields["f"] = self.choice(("4",) * 9 + ("52",))
        more = self.choice(("",) * 9 + ("\x02WAIT\x01false", "\x02a\x01common", "\x02TIMER_D\x011"))
        fields["i"] = _OF_HALVES + more
        fields["j"] = self.choice(("0",) * 9 + (self._odd_text(),))

    def _end_of_halves(self) -> bytes:
        """A request that ends halves, of which some may not be there."""
        from tests.daemons.broker.native_pair import ended

        first = self.randrange(len(self._halves))
        places = self._halves[first : first + self.choice((2, 5, 40))]
        if self.random() < 0.2:
            self.shuffle(places)
        if self.random() < 0.1:
            wrong = _as_long(self.choice(_NUMBERS)), _as_long(self.choice(_NUMBERS))
            places.insert(self.randrange(len(places) + 1), wrong)
        group = self.choice(("P",) * 9 + ("Q",))
        return ended(places, group, self.choice(("8", "8", "8", "12", "0")))

    def _make_odd(self, header: dict[str, object], fields: dict[str, object]) -> None:
        for _ in range(self.choice((1, 1, 2, 3))):
            kind = self.randrange(4)
            name = self.choice(sorted(fields)) if fields else "a"
            if kind == 0:
                fields[name] = self._odd_value() if self.random() < 0.3 else self._odd_text()
            elif kind == 1:
                fields.pop(name, None)
            elif kind == 2:
                fields[self._word()] = self._odd_text()
            else:
                key = self.choice(("code", "flag", "opaque", "language", "version", "remark", "x"))
                header[key] = self.choice((0, 1, 2, 3, 310, 320, 10, 12, self._odd_value()))

    def _odd_text(self) -> str:
        return self.choice((self._word(), self.choice(_TEXTS), str(self.choice(_NUMBERS))))

    def _odd_value(self) -> object:
        return self.choice(
            (self.choice(_NUMBERS), self._odd_text(), None, True, False, 1.5, [], {}, [{"a": 1}])
        )

    def _text(self, header: object, odd: bool) -> bytes:
        text = json.dumps(
            header,
            ensure_ascii=self.random() < 0.5,
            separators=self.choice(((",", ":"), (",", ":"), (", ", ": "), ("\n,", "\t:"))),
            sort_keys=self.random() < 0.3,
        )
        if odd and self.random() < 0.5:
            at = self.randrange(len(text))
            text = text[:at] + self.choice((*_ESCAPES, ",", '"a":1,', "/**/", "\ufeff")) + text[at:]
        return text.encode(errors="surrogatepass")

    def _word(self) -> str:
        return self.choice(_WORDS)

    def _properties(self) -> str:
        if self.random() < 0.8:  # as a Java producer writes them
            number = self.randrange(1 << 60)
            parts = [
                f"KEYS\x01key{number}",
                f"UNIQ_KEY\x01{number:032X}",
                "WAIT\x01true",
                "TAGS\x01TagA",
            ]
            if self.random() < 0.5:
                self.shuffle(parts)
            return "\x02".join(parts) + self.choice(("", "\x02"))
        parts = []
        for _ in range(self.choice((0, 1, 2, 3, 5, 33))):
            name = self.choice(_NAMES) if self.random() < 0.8 else f"n{self.randrange(100)}"
            value = self._word() * self.choice((1, 1, 1, 50))
            parts.append(name + self.choice(("\x01",) * 20 + ("", "\x01\x01")) + value)
        text = "\x02".join(parts) + self.choice(("", "", "\x02", "\x02\x02"))
        if self.random() < 0.02:  # about the most that a record holds
            text += "\x02long\x01" + "x" * (32767 - len(text.encode()) - self.randrange(0, 60))
        return text

    def _body(self) -> bytes:
        size = self.choice((0, 1, 20, 20, 100, 1000))
        return self.randbytes(4096 + self.choice((-1, 0, 1)) if self.random() < 0.02 else size)

    def _batch(self) -> bytes:
        raw = b""
        for _ in range(self.choice((0, 1, 2, 4, 40))):
            body, text = self.randbytes(self.randrange(40)), self._properties().encode()
            wrong = self.choice((0,) * 200 + (1, -1, 1 << 20, -(1 << 31)))
            size, length = 22 + len(body) + len(text), len(body)
            if wrong and self.random() < 0.5:
                size = max(min(size + wrong, (1 << 31) - 1), -(1 << 31))
            elif wrong:
                length = max(min(length + wrong, (1 << 31) - 1), -(1 << 31))
            flag = self.choice((0, 0, 5, -1))
            raw += struct.pack(">iiiii", size, self.choice((0, -626843481)), 0, flag, length) + body
            raw += struct.pack(">H", len(text) & 0xFFFF) + text
        return raw[: len(raw) - self.choice((0,) * 20 + (1, 2, 21))]

    def _damaged(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.choice((1, 1, 2, 4))):
            at = self.randrange(len(changed))
            kind = self.randrange(4)
            if kind == 0:
                changed[at] = self.randrange(256)
            elif kind == 1:
                changed[at] ^= 1 << self.randrange(8)
            elif kind == 2:
                number = self.choice(_NUMBERS) & 0xFFFFFFFF
                changed[at : at + 4] = number.to_bytes(4, "big")
            else:
                start = self.randrange(len(data))
                changed[at:at] = data[start : start + self.randrange(1, 30)]
        return bytes(changed)


def _as_long(number: int) -> int:
    """The same in 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def take_library(path: Path) -> None:
    """Have another build of the native path taken, by a process that has not loaded any."""
    spec = spec_from_file_location(NAME, path, loader=ExtensionFileLoader(NAME, str(path)))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module


def _begin() -> None:
    """What a process needs that runs seeds."""
    from tests.daemons.broker.native_pair import stand_still

    stand_still(setattr)
    logging.disable(logging.CRITICAL)


def run_seed(seed: int, cases: int = CASES) -> Failure | tuple[int, int]:
    """Give the cases of a seed to both; how many were given, and how many calls were taken
    natively."""
    from tests.daemons.broker.native_pair import TO_EACH_QUEUE, Pair

    made, number = Cases(seed), -1
    with tempfile.TemporaryDirectory(prefix="mq-both-paths-", dir=_memory()) as folder:
        pair = Pair(Path(folder), SETTINGS)
        try:
            pair.compare([TO_EACH_QUEUE])
            while number < cases - 1:
                number += 1
                together = made.random() < _TOGETHER
                made.answered(
                    pair.compare_together(made.together())
                    if together
                    else pair.compare(made.case())
                )
            taken = pair.brokers[0].taken
            if not pair.brokers[0].is_taking:
                return Failure(seed, number, "the native path has failed")
        except Exception:
            return Failure(seed, number, traceback.format_exc(limit=-3))
        finally:
            pair.close()
        ours, theirs = (broker.files() for broker in pair.brokers)
        if ours != theirs:
            return Failure(seed, number, "the files differ")
    return cases, taken


def _memory() -> str | None:
    """Return a folder whose files are in memory; durability is not tested."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing.both_paths")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=1, help="seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--library", type=Path, help="of the native path, instead of that in use")
    given = parser.parse_args()
    if given.library is not None:
        take_library(given.library)
    import_module("tests.daemons.broker.native_pair")  # once, and not by each process
    from mq.protocol.native import absent, native

    if native is None:
        print(f"the native path is not there: {absent}", file=sys.stderr)
        return 1
    seeds = range(given.first, given.first + -(-given.cases // CASES))
    began, done, taken, failures = time.monotonic(), 0, 0, 0
    with multiprocessing.get_context("fork").Pool(
        given.processes, _begin, maxtasksperchild=20
    ) as pool:
        for seed, result in zip(seeds, pool.imap(run_seed, seeds), strict=True):
            if isinstance(result, Failure):
                failures += 1
                print(f"seed {seed}, case {result.case}: {result.text}", flush=True)
                continue
            done, taken = done + result[0], taken + result[1]
            if seed % 100 == 0 or seed == seeds[-1]:
                seconds = time.monotonic() - began
                print(
                    f"{done} cases up to seed {seed}, {taken} calls taken natively, "
                    f"{failures} seeds failed, {seconds:.0f} s",
                    flush=True,
                )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
