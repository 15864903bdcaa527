"""Settings of the listening and the connecting side, with the names of Java's NettyServerConfig and
NettyClientConfig (4.9.8). Settings that only tune Netty are accepted without effect.
"""

import os
from dataclasses import dataclass

from mq.client.transport.buffers import SocketBuffers
from mq.daemons.config import ConfigError, Section, setting

# Limits of unsent bytes of a slow peer: above the high mark the listener stops reading from it
# until the transport's buffer is below the low mark.
DEFAULT_MARK = 0  # 0: the transport's own limits


@dataclass(frozen=True)
class NettyServerConfig(Section):
    """The listening side."""

    listen_port: int = setting(8888, "port of the main listener")
    bind_address: str = setting(
        "",
        "address to listen on (a 5.x name); empty: loopback, unless access control is on or an "
        "announced address is set",
    )
    server_worker_threads: int = setting(8, "threads that decode frames", effect=False)
    server_callback_executor_threads: int = setting(0, "threads that call back", effect=False)
    server_selector_threads: int = setting(3, "threads that read sockets", effect=False)
    server_oneway_semaphore_value: int = setting(
        256, "one-way requests in flight to one peer", effect=False
    )
    server_async_semaphore_value: int = setting(64, "requests in flight to one peer", effect=False)
    server_channel_max_idle_time_seconds: int = setting(
        120, "a connection without traffic for this long is closed", unit="s"
    )
    server_socket_snd_buf_size: int = setting(
        0, "SO_SNDBUF of accepted connections; 0: the system's", unit="bytes"
    )
    server_socket_rcv_buf_size: int = setting(
        0, "SO_RCVBUF of accepted connections; 0: the system's", unit="bytes"
    )
    write_buffer_high_water_mark: int = setting(
        DEFAULT_MARK,
        "unsent bytes of one peer above which it is not read from",
        unit="bytes",
        effect=False,
    )
    write_buffer_low_water_mark: int = setting(
        DEFAULT_MARK, "unsent bytes below which it is read from again", unit="bytes", effect=False
    )
    server_socket_backlog: int = setting(1024, "connections that wait to be accepted")
    server_pooled_byte_buf_allocator_enable: bool = setting(
        True, "pooled buffers of Netty", effect=False
    )
    use_epoll_native_selector: bool = setting(False, "Netty's native epoll", effect=False)

    def buffers(self) -> SocketBuffers:
        """Buffers of accepted connections."""
        return SocketBuffers(self.server_socket_snd_buf_size, self.server_socket_rcv_buf_size)

    def check(self) -> None:
        """Refuse invalid values. Raises ConfigError naming the setting."""
        check_not_negative(self, "server_socket_snd_buf_size", "server_socket_rcv_buf_size")
        if not 0 <= self.listen_port <= 65535:
            raise ConfigError(f"listenPort={self.listen_port}: expected 0 to 65535")


@dataclass(frozen=True)
class NettyClientConfig(Section):
    """The connecting side: name servers, and the master of a slave."""

    client_worker_threads: int = setting(4, "threads that decode frames", effect=False)
    client_callback_executor_threads: int = setting(
        factory=lambda: os.cpu_count() or 1,
        shown="cores",
        doc="threads that call back",
        effect=False,
    )
    client_oneway_semaphore_value: int = setting(65535, "one-way requests in flight", effect=False)
    client_async_semaphore_value: int = setting(65535, "requests in flight", effect=False)
    connect_timeout_millis: int = setting(3000, "time to connect", unit="ms")
    channel_not_active_interval: int = setting(
        60_000, "check of unused connections", unit="ms", long=True, effect=False
    )
    client_channel_max_idle_time_seconds: int = setting(
        120, "a connection without traffic for this long is closed", unit="s", effect=False
    )
    client_socket_snd_buf_size: int = setting(
        0, "SO_SNDBUF of connections to name servers; 0: the system's", unit="bytes"
    )
    client_socket_rcv_buf_size: int = setting(
        0, "SO_RCVBUF of connections to name servers; 0: the system's", unit="bytes"
    )
    client_pooled_byte_buf_allocator_enable: bool = setting(
        False, "pooled buffers of Netty", effect=False
    )
    client_close_socket_if_timeout: bool = setting(
        True, "close the connection of a request that got no reply", effect=False
    )
    use_tls: bool = setting(
        False, "TLS towards name servers and master, as tls.enable", name="useTLS"
    )
    write_buffer_high_water_mark: int = setting(
        DEFAULT_MARK, "unsent bytes", unit="bytes", effect=False
    )
    write_buffer_low_water_mark: int = setting(
        DEFAULT_MARK, "unsent bytes", unit="bytes", effect=False
    )

    def buffers(self) -> SocketBuffers:
        """Buffers of outgoing connections."""
        return SocketBuffers(self.client_socket_snd_buf_size, self.client_socket_rcv_buf_size)

    def check(self) -> None:
        """Refuse invalid values. Raises ConfigError naming the setting."""
        check_not_negative(self, "client_socket_snd_buf_size", "client_socket_rcv_buf_size")


def check_not_negative(section: Section, *attributes: str) -> None:
    """Raises ConfigError for the first of these numbers that is negative."""
    for declared in section.settings().values():
        value = getattr(section, declared.attribute)
        if declared.attribute in attributes and value < 0:
            raise ConfigError(f"{declared.name}={value}: must be at least 0")
