from hypothesis import given
from hypothesis import strategies as st

from mq.client.tube import producer
from mq.protocol.tube.messages import AuthorizedInfo, SendMessageRequestP2B, parse

TEXTS = st.text(min_size=1, max_size=200)


@given(
    TEXTS,
    TEXTS,
    st.integers(0, 2**31 - 1),
    st.binary(max_size=20_000),
    st.integers(0, 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.integers(-2, 2**62),
    st.none() | TEXTS,
)
def test_a_request_says_what_protobuf_would(
    client: str,
    topic: str,
    partition: int,
    data: bytes,
    flag: int,
    checksum: int,
    address: int,
    message_type: str | None,
    message_time: str | None,
    visit: int,
    token: str | None,
) -> None:
    info = AuthorizedInfo(visitAuthorizedToken=visit, authAuthorizedToken=token)
    written = producer.send_request(
        producer.head(client, topic, partition),
        data,
        flag,
        checksum,
        message_type,
        message_time,
        producer.tail(address, info),
    )
    assert parse(SendMessageRequestP2B, written) == SendMessageRequestP2B(
        clientId=client,
        topicName=topic,
        partitionId=partition,
        data=data,
        flag=flag,
        checkSum=checksum,
        sentAddr=address,
        msgType=message_type,
        msgTime=message_time,
        authInfo=info,
    )
