from __future__ import annotations

import pytest

from ottla.security.rates import RateLimit, SampledRate, TokenBucket


def test_a_rate_that_has_just_begun_is_spread_over_all_but_one_window() -> None:
    rate = SampledRate(11, 1000)
    rate.record(500, 0)
    assert rate.measure(0) == (50, 10_000)
    rate.record(500, 999)
    assert rate.measure(999) == pytest.approx((1000 / 10.999, 10_999))


def test_what_is_older_than_the_windows_does_not_count() -> None:
    rate = SampledRate(3, 1000)
    for at in range(0, 5000, 500):
        rate.record(10, at)
    # The windows that began at 2, 3 and 4 seconds.
    per_second, window_ms = rate.measure(4999)
    assert window_ms == 2999
    assert per_second == pytest.approx(60 / 2.999)
    assert not rate.is_idle(4999)
    assert rate.is_idle(7000)
    assert rate.measure(7000)[0] == 0


def test_who_exceeds_a_limit_waits_until_the_rate_is_what_it_may_be() -> None:
    limit = RateLimit(100, 11, 1000)
    assert limit.record(1000, 0) == 0
    # 200 a second over ten seconds: twice as many seconds would make it 100.
    assert limit.record(1000, 0) == 10_000
    assert limit.throttle_ms(0, longest_windows=1) == 1000
    limit.take_back(1000, 0)
    assert limit.throttle_ms(0) == 0
    assert limit.window_amount == 1000


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(2, 11, 1000)
    assert bucket.record(22, 0) == 0
    assert bucket.throttle_ms(0) == 0
    # It goes into debt once, and that is waited for.
    assert bucket.record(10, 0) == 5000
    assert bucket.throttle_ms(2000) == 3000
    assert bucket.throttle_ms(5000) == 0
    assert not bucket.is_idle(5000)
    assert bucket.is_idle(16_000)
    assert bucket.throttle_ms(100_000) == 0
    assert bucket.record(23, 100_000) == 500


def test_a_time_to_wait_fits_into_an_answer() -> None:
    assert RateLimit(0.001, 2, 1000).record(1e9, 0) == 2**31 - 1
    bucket = TokenBucket(0.001, 2, 1000)
    assert bucket.record(1e9, 0) == 2**31 - 1
