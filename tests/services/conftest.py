"""Real services for the tests in this folder, shared by them all.

A test asks for `fleet` and says what it needs: `fleet.up("kafka", "s3")`. What runs already costs a moment. A service
that does not come up fails the test with the launcher's words; nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.settings_fleet import Fleet as FleetSettings
from tests.support.services import Fleet, port_offset

__all__ = ["Fleet"]


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Nothing runs yet; what the tests bring up is shared by them all and ended after the last."""
    environment = pytest.MonkeyPatch()
    environment.setenv("HEADRACE_PORTS", port_offset())
    fleet = Fleet(tmp_path_factory.mktemp("services"))
    try:
        yield fleet
    finally:
        fleet.down()
        environment.undo()


@pytest.fixture
def owners_keyspace(fleet: Fleet) -> FleetSettings:
    """Cassandra with the tables that the tests of owners share: their hosts have names of their own. Asked for by each
    of them, since another may have ended all services: an owner waits for ever for one that is away."""
    return fleet.keyspace("owners_test")
