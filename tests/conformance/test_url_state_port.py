"""The URL store and the epochs in memory obey the laws that the real ones obey (tests/services/test_url_state.py)."""

from __future__ import annotations

import pytest

from connectors.ports import Epochs
from connectors.url_state_memory import MemoryEpochs, MemoryUrlState
from tests.conformance.url_state_suite import EpochLaws, OpenStore, UrlStateLaws


class TestInMemory(UrlStateLaws):
    """connectors.url_state_memory"""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """All of them the same rows, as two processes have."""
        store = MemoryUrlState()
        return lambda: store


class TestEpochsInMemory(EpochLaws):
    """connectors.url_state_memory"""

    @pytest.fixture
    def epochs(self) -> Epochs:
        """Nothing is taken."""
        return MemoryEpochs()
