"""A disk with blocks that cannot be read: ext4 on a loop device whose backing file is cut short.

Reads of a block beyond the end of the backing file fail with EIO. `BadDisk.spoil` moves chosen
blocks of a file there, so that a single block in the middle of a file can be unreadable.
"""

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BLOCK = 4096
_SIZE = 64 << 20
_DONOR = 4 << 20  # bytes at the end of the device that blocks are moved to
_OPTIONS = ("-q", "-F", "-b", str(BLOCK), "-m", "0", "-O", "^has_journal")
_FIBMAP = 1
_MOVE_EXTENT = 0xC028660F  # EXT4_IOC_MOVE_EXT
_MOVE = struct.Struct("IIQQQQ")


class BadDisk:
    """A mounted file system in ``folder``, on the image ``image``."""

    def __init__(self, folder: Path, image: Path, donor: Path) -> None:
        self.folder = folder
        self._image = image
        self._donor = donor

    def spoil(self, *places: tuple[Path, int]) -> None:
        """Make the blocks at positions of files unreadable, once. They must not be mapped."""
        donor = os.open(self._donor, os.O_RDWR)
        try:
            blocks = range(os.fstat(donor).st_size // BLOCK)
            found = ((_physical(donor, block), block) for block in blocks)
            spare = sorted(one for one in found if one[0])
            lowest = spare[-len(places)][0]
            for path, position in places:
                source = os.open(path, os.O_RDWR)
                try:
                    os.fsync(source)
                    move = _MOVE.pack(0, donor, position // BLOCK, spare.pop()[1], 1, 0)
                    fcntl.ioctl(source, _MOVE_EXTENT, bytearray(move))
                finally:
                    os.close(source)
        finally:
            os.close(donor)
        os.sync()
        os.truncate(self._image, lowest * BLOCK)
        drop_caches()
        for path, position in places:
            with path.open("rb", buffering=0) as file, pytest.raises(OSError, match="Input/output"):
                os.pread(file.fileno(), 1, position)


def _keep_last(donor: Path) -> None:
    """Fill the device, so that a file gets only the blocks at its end."""
    with donor.open("rb") as file:
        blocks = range(os.fstat(file.fileno()).st_size // BLOCK)
        places = [_physical(file.fileno(), block) for block in blocks]
    least = sorted(places)[-_DONOR // BLOCK]
    begin = None
    for block in [*blocks, None]:
        is_low = block is not None and places[block] < least
        if is_low and begin is None:
            begin = block
        elif not is_low and begin is not None:
            end = len(blocks) if block is None else block
            run("fallocate", "-p", "-o", begin * BLOCK, "-l", (end - begin) * BLOCK, donor)
            begin = None
    os.sync()


def drop_caches() -> None:
    """Let the kernel evict clean pages that no process has mapped."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1\n")


def _physical(descriptor: int, block: int) -> int:
    (found,) = struct.unpack("i", fcntl.ioctl(descriptor, _FIBMAP, struct.pack("i", block)))
    return int(found)


def run(*words: object) -> str:
    return subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, text=True
    ).stdout.strip()


@contextmanager
def mounted(image: Path, folder: Path, kind: str, *options: str) -> Iterator[None]:
    """A new file system on an image file; skips the test if it cannot be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    try:
        run(f"mkfs.{kind}", *options, image)
        device = run("losetup", "--show", "-f", image)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop device with {kind} here: {error}")
    try:
        try:
            folder.mkdir()
            run("mount", device, folder)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"{kind} cannot be mounted here: {error}")
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@contextmanager
def bad_disk(tmp_path: Path) -> Iterator[BadDisk]:
    """A disk whose blocks can be spoilt; skips the test if there is none."""
    image, folder = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(_SIZE)
    with mounted(image, folder, "ext4", *_OPTIONS):
        device = Path(run("findmnt", "-n", "-o", "SOURCE", folder)).name
        Path(f"/sys/fs/ext4/{device}/reserved_clusters").write_text("0")
        donor = folder / "donor"
        with donor.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"\1" * BLOCK):  # until it is full
                pass
        os.sync()
        _keep_last(donor)
        yield BadDisk(folder, image, donor)
