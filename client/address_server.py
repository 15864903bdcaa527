"""An address server: an HTTP server that knows the name servers of a cluster."""

ADDRESS_SERVER_TIMEOUT = 3.0
ADDRESS_SERVER_SECONDS = 120.0  # how often clients ask again (MQClientInstance.startScheduledTask)
MOST_ADDRESS_BYTES = 64 * 1024


def address_server_url(domain: str, sub_group: str) -> str:
    """Where the list is (MixAll.getWSAddr): port 8080 unless the domain has one."""
    return f"http://{domain if ':' in domain else domain + ':8080'}/rocketmq/{sub_group}"


def is_url(namesrv: object) -> bool:
    """Whether this is not a list of name servers, but says where one is."""
    return isinstance(namesrv, str) and namesrv.startswith(("http://", "https://"))


def fetch_text(url: str) -> str:
    """Read a short text over HTTP; blocks, so call it in a thread.

    Raises:
        OSError: no connection, or a status other than 200.
        ValueError: it is not short UTF-8 text.
    """
    import urllib.request  # costs 20 ms and 4 MB, and almost nobody has an address server

    with urllib.request.urlopen(url, timeout=ADDRESS_SERVER_TIMEOUT) as response:
        data: bytes = response.read(MOST_ADDRESS_BYTES + 1)
    if len(data) > MOST_ADDRESS_BYTES:
        raise ValueError(f"more than {MOST_ADDRESS_BYTES} bytes")
    return data.decode().strip()
