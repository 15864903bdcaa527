"""What can be imported from the package."""

import mq.client.tube
from mq.client.tube.consumer import TubeConsumer


def test_each_name_can_be_imported_from_the_package() -> None:
    found = {name: getattr(mq.client.tube, name) for name in mq.client.tube.__all__}
    assert found["TubeConsumer"] is TubeConsumer
    assert all(value.__name__ == name for name, value in found.items())


def test_another_name_is_not_there() -> None:
    assert not hasattr(mq.client.tube, "TubeConsumers")
