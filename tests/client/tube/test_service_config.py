"""The file that the C++ client starts with."""

import logging
from pathlib import Path

import pytest

from mq.client.errors import ClientError
from mq.client.tube.service_config import LOGGER, ServiceConfig


def read(tmp_path: Path, text: str) -> ServiceConfig:
    path = tmp_path / "client.conf"
    path.write_text(text)
    return ServiceConfig.read(path)


def test_the_original_s_file_is_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        "[TubeMQ]\nlog_num=5\nlog_size=7\nlog_path=/tmp/x/tube\nlog_level=2\n"
        "dns_xfs_period_ms=45000\ntimer_threads=3\nnetwork_threads=5\nsignal_threads=7\n",
    )
    assert (config.log_files, config.log_file_mib, config.log_level) == (5, 7, 2)
    assert config.log_path == Path("/tmp/x/tube")
    assert config.dns_period == 45.0
    assert config.without_meaning == ("timer_threads", "network_threads", "signal_threads")


def test_what_a_file_does_not_say_is_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, "[TubeMQ]\nlog_path=\n") == ServiceConfig()


def test_numbers_out_of_their_bounds_are_taken_for_the_nearest(tmp_path: Path) -> None:
    config = read(tmp_path, "[TubeMQ]\nlog_level=9\ndns_xfs_period_ms=5\nlog_num=-1\nlog_size=0\n")
    assert (config.log_level, config.dns_period) == (4, 10.0)
    assert (config.log_files, config.log_file_mib) == (1, 1)
    assert read(tmp_path, "[TubeMQ]\nlog_level=-3\n").log_level == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[Other]\n", "no section"),
        ("log_num=5\n", "cannot be read"),
        ("[TubeMQ]\nlog_num=many\n", "log_num=many is not a number"),
        ("[TubeMQ\n", "cannot be read"),
    ],
)
def test_an_invalid_file_is_refused_by_its_name(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ClientError, match=why) as caught:
        read(tmp_path, text)
    assert "client.conf" in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="cannot be read"):
        ServiceConfig.read(tmp_path / "none.conf")
    (tmp_path / "bytes.conf").write_bytes(b"\xff\xfe")
    with pytest.raises(ClientError, match="not UTF-8"):
        ServiceConfig.read(tmp_path / "bytes.conf")


@pytest.mark.parametrize(
    "wrong", [{"dns_period": 9.9}, {"log_level": 5}, {"log_files": 0}, {"log_file_mib": 0}]
)
def test_settings_out_of_their_bounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ClientError):
        ServiceConfig(**wrong)  # type: ignore[arg-type]


def test_a_log_is_written_and_kept_within_its_sizes(tmp_path: Path) -> None:
    config = ServiceConfig(
        log_path=tmp_path / "deep" / "tube", log_files=2, log_file_mib=1, log_level=2
    )
    handler = config.open_log()
    assert handler is not None
    logger = logging.getLogger(f"{LOGGER}.test")
    try:
        for _ in range(3):
            logger.info("x" * 700_000)
        logger.debug("nothing of this")
    finally:
        logging.getLogger(LOGGER).removeHandler(handler)
        logging.getLogger(LOGGER).setLevel(logging.NOTSET)
        handler.close()
    files = sorted(path.name for path in (tmp_path / "deep").iterdir())
    assert files == ["tube.log", "tube.log.1"]
    assert "nothing of this" not in (tmp_path / "deep" / "tube.log").read_text()


def test_without_a_path_logging_is_left_to_the_program() -> None:
    assert ServiceConfig().open_log() is None


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClientError, match="cannot be written"):
        ServiceConfig(log_path=tmp_path / "file" / "tube").open_log()
