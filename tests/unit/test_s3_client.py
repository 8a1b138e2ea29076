"""The client of the object store that all stages share."""

from __future__ import annotations

from infra.provision.s3_store import open_client
from infra.settings_fleet import Fleet
from infra.wiring_parse import READS_MAX
from streams.fleet.fetch_store import Keeping
from streams.fleet.route import TEXTS_MAX


def test_it_keeps_a_connection_for_each_read_at_once() -> None:
    """A smaller pool closes the connection of every read beyond it, and says so in the log each time."""
    client = open_client(Fleet())
    assert client.meta.config.max_pool_connections >= max(TEXTS_MAX, READS_MAX, Keeping().uploads_max)
