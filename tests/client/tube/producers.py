"""A scripted master and two scripted brokers for producers."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from mq.client.tube.producer import TubeProducer
from mq.client.tube.producer_options import TubeProducerOptions
from mq.daemons.tube.rpc import MAX_SEND, Call, Route, RpcListener, ServiceFailure
from mq.protocol.tube.codes import Code, Method
from mq.protocol.tube.messages import (
    ApprovedClientConfig,
    CloseRequestP2M,
    CloseResponseM2P,
    HeartRequestP2M,
    HeartResponseM2P,
    MasterAuthorizedInfo,
    RegisterRequestP2M,
    RegisterResponseM2P,
    SendMessageRequestP2B,
    SendMessageResponseB2P,
)
from tests.daemons.tube.rpc_peers import run

QUICK = TubeProducerOptions(heartbeat_interval=0.05, heartbeat_interval_after_failures=0.05)


class Cluster:
    """A scripted master and two scripted brokers; records their requests."""

    def __init__(self, master_host: str = "127.0.0.1") -> None:
        self.registered: list[RegisterRequestP2M] = []
        self.beats: list[HeartRequestP2M] = []
        self.closed: list[CloseRequestP2M] = []
        self.sent: list[SendMessageRequestP2B] = []
        self.beat_code = Code.SUCCESS
        self.register_code = Code.SUCCESS
        self.standby = False
        self.topics = {"test": "1:1:1,2:1:1"}
        self.checksum = 5
        self.answer: Callable[[SendMessageRequestP2B], SendMessageResponseB2P | None] = stored
        master = {
            Method.PRODUCER_REGISTER_P2M: Route(self._register, RegisterRequestP2M),
            Method.PRODUCER_HEARTBEAT_P2M: Route(self._beat, HeartRequestP2M),
            Method.PRODUCER_CLOSE_P2M: Route(self._close, CloseRequestP2M),
        }
        self.master = RpcListener(master, master_host, 0)
        send = {Method.SEND_MESSAGE_P2B: Route(self._send, SendMessageRequestP2B, MAX_SEND)}
        self.brokers = [RpcListener(send, "127.0.0.1", 0) for _ in range(2)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.master.port}"

    @property
    def infos(self) -> list[str]:
        return [f"{n}:127.0.0.1:{one.port}" for n, one in enumerate(self.brokers, 1)]

    def _check(self) -> None:
        if self.standby:
            raise ServiceFailure("StandbyException", "not the active one")

    def _register(self, call: Call) -> RegisterResponseM2P:
        self._check()
        self.registered.append(call.message)
        return RegisterResponseM2P(
            success=self.register_code == Code.SUCCESS,
            errCode=self.register_code,
            errMsg="registered",
            brokerCheckSum=self.checksum,
            brokerInfos=self.infos,
            authorizedInfo=MasterAuthorizedInfo(visitAuthorizedToken=4711),
            appdConfig=ApprovedClientConfig(configId=9, maxMsgSize=100),
        )

    def _beat(self, call: Call) -> HeartResponseM2P:
        self._check()
        request = call.message
        self.beats.append(request)
        wanted = [f"{t}#{self.topics[t]}#" for t in request.topicList if t in self.topics]
        code, self.beat_code = self.beat_code, Code.SUCCESS
        known = request.brokerCheckSum == self.checksum
        return HeartResponseM2P(
            success=code in (Code.SUCCESS, Code.NOT_READY),
            errCode=code,
            errMsg="beaten",
            brokerCheckSum=self.checksum,
            brokerInfos=[] if known else self.infos,
            topicInfos=[] if code == Code.NOT_READY else wanted,
        )

    def _close(self, call: Call) -> CloseResponseM2P:
        self.closed.append(call.message)
        return CloseResponseM2P(success=True, errCode=200, errMsg="OK!")

    def _send(self, call: Call) -> SendMessageResponseB2P | None:
        self.sent.append(call.message)
        return self.answer(call.message)


def stored(request: SendMessageRequestP2B) -> SendMessageResponseB2P:
    return SendMessageResponseB2P(success=True, errCode=200, errMsg="123456789")


def refused(code: int) -> SendMessageResponseB2P:
    return SendMessageResponseB2P(success=False, errCode=code, errMsg="no")


@contextlib.asynccontextmanager
async def cluster(master_host: str = "127.0.0.1") -> AsyncIterator[Cluster]:
    made = Cluster(master_host)
    async with contextlib.AsyncExitStack() as stack:
        for listener in (made.master, *made.brokers):
            await stack.enter_async_context(listener)
        yield made


def with_producer(
    test: Callable[[TubeProducer, Cluster], Awaitable[None]],
    options: TubeProducerOptions = QUICK,
    prepare: Callable[[Cluster], None] = lambda _: None,
) -> None:
    async def opened() -> None:
        async with cluster() as made:
            prepare(made)
            async with TubeProducer(made.address, ["test"], options) as producer:
                await test(producer, made)

    run(opened())
