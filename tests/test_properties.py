"""How properties are tried: on how many examples, and without a limit of time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def test_no_example_is_timed():
    for own in (settings(), settings(max_examples=5)):
        assert own.deadline is None
        assert HealthCheck.too_slow in own.suppress_health_check


def test_no_test_sets_a_time_of_its_own(request):
    found = []
    for item in request.session.items:
        own = getattr(getattr(item, "function", None), "_hypothesis_internal_use_settings", None)
        if own is not None and own.deadline is not None:
            found.append(item.nodeid)
    assert not found
