"""The names that `mq.client` exports."""

import mq.client


def test_dir_lists_the_exported_names() -> None:
    shown = dir(mq.client)
    assert {"Producer", "Consumer", "Session", "SendResult"} <= set(shown)
    for name in mq.client.__all__:
        assert getattr(mq.client, name) is not None
