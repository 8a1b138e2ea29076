"""The URL store and the epochs in memory obey the laws that the real ones obey (tests/services/test_url_state.py)."""

from __future__ import annotations

import pytest

from connectors.ports import Epochs, StoreClosed, UrlState
from connectors.url_state_memory import MemoryEpochs, MemoryUrlState
from tests.conformance.url_state_suite import EpochLaws, OpenStore, UrlStateLaws


class TestInMemory(UrlStateLaws):
    """connectors.url_state_memory"""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """All of them the same rows, as two processes have."""
        rows = MemoryUrlState()
        return lambda: MemoryUrlState(rows)


class TestEpochsInMemory(EpochLaws):
    """connectors.url_state_memory"""

    @pytest.fixture
    def epochs(self) -> Epochs:
        """Nothing is taken."""
        return MemoryEpochs()


def test_the_fake_closes_alone() -> None:
    """Protects tests of two owners: the old one's end is not the new one's."""
    rows = MemoryUrlState()
    one: UrlState = MemoryUrlState(rows)
    one.close()
    with pytest.raises(StoreClosed):
        one.scan("https://a.test", b"", 1)
    assert rows.scan("https://a.test", b"", 1) == []
