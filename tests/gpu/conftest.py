"""What several GPU tests share."""

import pytest


@pytest.fixture(scope="module")
def device():
    """The GPU at hand, for running instruction forms."""
    from harness.conformance.cuda import NoDevice
    from harness.conformance.fetch import Hardware

    try:
        return Hardware()
    except NoDevice as e:
        pytest.skip(str(e))
