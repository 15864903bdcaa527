"""Address servers: HTTP servers that publish the list of a cluster's name servers."""

ADDRESS_SERVER_TIMEOUT = 3.0
# how often clients refresh the list (MQClientInstance.startScheduledTask)
ADDRESS_SERVER_SECONDS = 120.0
MOST_ADDRESS_BYTES = 64 * 1024


def address_server_url(domain: str, sub_group: str) -> str:
    """Return the URL of the list (MixAll.getWSAddr). The port is 8080 unless the domain has one."""
    return f"http://{domain if ':' in domain else domain + ':8080'}/rocketmq/{sub_group}"


def is_url(namesrv: object) -> bool:
    """Whether `namesrv` is the URL of an address server rather than a list of name servers."""
    return isinstance(namesrv, str) and namesrv.startswith(("http://", "https://"))


def fetch_text(url: str) -> str:
    """Fetch a short text over HTTP. Blocks; call it in a thread.

    Raises:
        OSError: the connection failed, or the status is not 200.
        ValueError: the answer is not short UTF-8 text.
    """
    import urllib.request  # imported here: it costs 20 ms and 4 MB, and address servers are rare

    with urllib.request.urlopen(url, timeout=ADDRESS_SERVER_TIMEOUT) as response:
        data: bytes = response.read(MOST_ADDRESS_BYTES + 1)
    if len(data) > MOST_ADDRESS_BYTES:
        raise ValueError(f"more than {MOST_ADDRESS_BYTES} bytes")
    return data.decode().strip()
