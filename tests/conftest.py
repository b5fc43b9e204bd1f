"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine that is busy with other tests says nothing about a strategy: time is not what these tests look at.
settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")
