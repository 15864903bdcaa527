"""What `mq.client` says it has."""

import mq.client


def test_dir_shows_what_can_be_imported() -> None:
    shown = dir(mq.client)
    assert {"Producer", "Consumer", "Session", "SendResult"} <= set(shown)
    for name in mq.client.__all__:
        assert getattr(mq.client, name) is not None
