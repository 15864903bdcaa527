from mq.daemons.broker.store.log.publishing import PutTimes


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_times_are_counted_by_the_steps_of_java() -> None:
    times = PutTimes(Clock())
    for milliseconds, messages in (
        (0, 3),
        (-5, 1),
        (9, 2),
        (10, 1),
        (999, 1),
        (1000, 1),
        (99_999, 1),
    ):
        times.add(milliseconds, messages)
    assert times.distribution() == (
        "[<=0ms]:4 [0~10ms]:2 [10~50ms]:1 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:1 "
        "[1~2s]:1 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert times.longest == 99_900


def test_percentiles_are_of_messages_not_of_batches() -> None:
    times = PutTimes(Clock())
    times.add(1, 990)
    times.add(20, 9)
    times.add(300, 1)
    assert (times.percentile(0.99), times.percentile(0.999)) == (1.0, 20.0)
    assert times.percentile(1.0) == 300.0
    assert PutTimes().percentile(0.99) == 0.0


def test_the_last_whole_minute_is_shown() -> None:
    clock = Clock()
    times = PutTimes(clock)
    times.add(5, 10)
    assert "[0~10ms]:10" in times.distribution()
    clock.now += 61
    times.add(20, 7)
    assert "[0~10ms]:10" in times.distribution() and "[10~50ms]:0" in times.distribution()
    clock.now += 61
    assert "[0~10ms]:0" in times.distribution() and "[10~50ms]:7" in times.distribution()
    clock.now += 200
    assert "[10~50ms]:0" in times.distribution()
    assert times.longest == 20
