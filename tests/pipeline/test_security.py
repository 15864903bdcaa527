"""Reads of a broker with access control and TLS: the work of a task, without Spark."""

import asyncio
from pathlib import Path

import pytest
import trustme

from mq.client.admin import Admin
from mq.client.credentials import AccessKey
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.protocol.bodies import TopicConfig
from mq.protocol.message import Message
from mq.testing import RunningBroker
from tests.daemons.broker.acl.accounts import home
from tests.pipeline.conftest import require_spark

require_spark()

import pyarrow as pa  # noqa: E402
from pyspark.sql.types import BinaryType, StringType, StructType  # noqa: E402

from mq.pipeline.batch import BatchReader  # noqa: E402
from mq.pipeline.errors import OptionError, WriteFailed  # noqa: E402
from mq.pipeline.options import parse_options  # noqa: E402
from mq.pipeline.sink import BatchWriter, check_target  # noqa: E402
from mq.pipeline.write_options import parse_write_options  # noqa: E402

BODY = StructType().add("body", BinaryType())
ACCOUNTS = """\
accounts:
  - {accessKey: administrator, secretKey: admin_secret, admin: true}
  - accessKey: application
    secretKey: application_secret
    defaultGroupPerm: SUB
    topicPerms: [Orders=PUB|SUB, Prices=DENY]
"""


def read(**options: str) -> list[bytes]:
    reader = BatchReader(parse_options(options), BODY)
    return [
        body
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for body in batch.column("body").to_pylist()
    ]


def write(body: str, **options: str) -> int:
    writer = BatchWriter(parse_write_options(options), StructType().add("body", StringType()))
    return writer.write(iter([pa.record_batch([pa.array([body])], names=["body"])])).rows


def test_an_access_key_from_a_file_reads_what_it_may(tmp_path: Path) -> None:
    home(tmp_path, ACCOUNTS)
    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    key = tmp_path / "tools.yml"
    key.write_text("accessKey: application\nsecretKey: application_secret\n")
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("accessKey: application\nsecretKey: guessed_secret\n")

    async def fill(name_server: str, address: str) -> None:
        admin = AccessKey("administrator", "admin_secret")
        async with Session(name_server, credentials=admin) as session:
            for topic in ("Orders", "Prices"):
                config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
                await Admin(session).create_topic(address, config)
            async with Producer(session) as producer:
                for topic in ("Orders", "Prices"):
                    await producer.send(Message(topic, b"one"))

    with RunningBroker(tmp_path / "store", settings) as broker:
        asyncio.run(fill(broker.name_server, broker.address))
        assert read(nameServer=broker.name_server, topic="Orders", aclFile=str(key)) == [b"one"]
        with pytest.raises(OptionError, match=r"option aclFile: .*NO_PERMISSION.*Prices"):
            read(nameServer=broker.name_server, topic="Prices", aclFile=str(key))
        assert write("two", nameServer=broker.name_server, topic="Orders", aclFile=str(key)) == 1
        with pytest.raises(WriteFailed, match=r"topic Prices: .*NO_PERMISSION"):
            write("two", nameServer=broker.name_server, topic="Prices", aclFile=str(key))
        for options in ({}, {"aclFile": str(wrong)}):
            with pytest.raises(OptionError, match="option aclFile: ") as raised:
                given = {"nameServer": broker.name_server, "topic": "Orders", **options}
                check_target(parse_write_options(given))
            assert "secret" not in str(raised.value)
            with pytest.raises(OptionError, match="option aclFile: ") as raised:
                read(nameServer=broker.name_server, topic="Orders", **options)
            assert "secret" not in str(raised.value)


def test_tls_encrypts_everything_and_verifies_if_required(tmp_path: Path) -> None:
    authority = trustme.CA()
    trusted, other = tmp_path / "trusted.pem", tmp_path / "other.pem"
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    authority.cert_pem.write_to_path(str(trusted))
    trustme.CA().cert_pem.write_to_path(str(other))
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    settings = {
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(key),
        "tls.config.file": "",
    }
    with RunningBroker(tmp_path / "store", settings) as broker:
        broker.send("Orders", b"one")
        options = {"nameServer": broker.name_server, "topic": "Orders", "useTLS": "true"}
        assert read(**options) == [b"one"]
        check_target(parse_write_options(options))
        assert write("two", **options) == 1
        assert sorted(read(**options)) == [b"one", b"two"]
        options["tls.client.authServer"] = "true"
        assert len(read(**options, **{"TLS.client.trustCertPath": str(trusted)})) == 2
        with pytest.raises(OptionError, match=r"option nameServer: .*certificate"):
            read(**options, **{"tls.client.trustCertPath": str(other)})


def test_an_expression_is_refused_before_any_task(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.send(mq_topic, b"one")
    options = {"nameServer": mq_session_broker.name_server, "topic": mq_topic, "numRetries": "0"}
    with pytest.raises(OptionError, match=r"option subExpression: .*SQL92"):
        read(**options, subExpression="a > 1", subExpressionType="SQL92")
