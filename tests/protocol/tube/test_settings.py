import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.settings import BrokerDefaults, TopicSettings, checksum

DEFAULTS = "3:true:false:1000:10000: :delete,168h:2:0:2:10:20000"
TOPIC = "test:4:false: :500: : :delete,24h:1:0:0:3: : :2097152"

INTS = st.none() | st.integers(0, 2**31 - 1)
BOOLS = st.none() | st.booleans()


def test_a_brokers_defaults_are_read_and_written() -> None:
    defaults = BrokerDefaults.parse(DEFAULTS)
    assert str(defaults) == DEFAULTS
    assert defaults == BrokerDefaults(
        partitions=3,
        accept_publish=True,
        accept_subscribe=False,
        flush_messages=1000,
        flush_interval_ms=10_000,
        delete_policy="delete,168h",
        stores=2,
        flush_bytes=0,
        cache_size=2,
        cache_messages=10,
        cache_flush_interval_ms=20_000,
    )


def test_a_topics_settings_are_read_and_written() -> None:
    settings = TopicSettings.parse(TOPIC)
    assert str(settings) == TOPIC
    assert settings == TopicSettings(
        "test",
        partitions=4,
        accept_publish=False,
        flush_messages=500,
        delete_policy="delete,24h",
        stores=1,
        flush_bytes=0,
        cache_size=3,
        max_message_size=2097152,
    )


def test_a_topic_that_has_nothing_of_its_own_is_blank_but_for_its_status() -> None:
    assert str(TopicSettings("test")) == "test: : : : : : : : :0: : : : : "
    assert TopicSettings.parse(str(TopicSettings("test"))) == TopicSettings("test")


def test_settings_of_an_older_master_have_no_size() -> None:
    assert TopicSettings.parse(TOPIC.rpartition(":")[0]).max_message_size is None


@given(
    st.builds(
        TopicSettings,
        topic=st.just("test"),
        partitions=INTS,
        accept_publish=BOOLS,
        accept_subscribe=BOOLS,
        flush_messages=INTS,
        flush_interval_ms=INTS,
        delete_policy=st.none() | st.just("delete,1h"),
        stores=INTS,
        status=st.integers(0, 3),
        flush_bytes=INTS,
        cache_size=INTS,
        cache_messages=INTS,
        cache_flush_interval_ms=INTS,
        max_message_size=INTS,
    )
)
def test_what_is_written_is_read(settings: TopicSettings) -> None:
    assert TopicSettings.parse(str(settings)) == settings


@pytest.mark.parametrize(
    "text", ["", "1:true", DEFAULTS.replace("true", "yes"), DEFAULTS.replace("3", "x", 1)]
)
def test_what_is_no_settings_of_a_broker_is_refused(text: str) -> None:
    with pytest.raises(MalformedText):
        BrokerDefaults.parse(text)


@pytest.mark.parametrize("text", ["", "test", TOPIC + ":1", TOPIC.replace("4", "four", 1)])
def test_what_is_no_settings_of_a_topic_is_refused(text: str) -> None:
    with pytest.raises(MalformedText):
        TopicSettings.parse(text)


def test_a_checksum_covers_zeros_of_the_same_length_and_no_order() -> None:
    # Of 31 bits, over a buffer of twice the characters (BrokerSyncData).
    expected = zlib.crc32(b"defab" + bytes(5)) & 0x7FFFFFFF
    assert checksum("def", ["b", "a"]) == checksum("def", ["a", "b"]) == expected
