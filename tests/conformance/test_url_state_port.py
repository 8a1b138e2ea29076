"""The URL store and the epochs in memory obey the laws that the real ones obey (tests/services/test_url_state.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.ports import Epochs
from connectors.url_state_memory import MemoryEpochs, MemoryUrlState
from tests.conformance.url_state_suite import EpochLaws, OpenStore, UrlStateLaws
from tests.support.url_state_file import FileUrlState


class TestInMemory(UrlStateLaws):
    """connectors.url_state_memory"""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """All of them the same rows, as two processes have."""
        store = MemoryUrlState()
        return lambda: store


class TestEpochsInAFile(EpochLaws):
    """tests.support.url_state_file"""

    @pytest.fixture
    def epochs(self, tmp_path: Path) -> Epochs:
        """Nothing is taken."""
        return FileUrlState(tmp_path / "rows", "r")

    @pytest.fixture
    def elsewhere(self, tmp_path: Path) -> Epochs:
        """The same file."""
        return FileUrlState(tmp_path / "rows", "elsewhere")


class TestEpochsInMemory(EpochLaws):
    """connectors.url_state_memory"""

    @pytest.fixture
    def epochs(self) -> Epochs:
        """Nothing is taken."""
        return MemoryEpochs("r")

    @pytest.fixture
    def elsewhere(self, epochs: Epochs) -> Epochs:
        """The same numbers."""
        assert isinstance(epochs, MemoryEpochs)
        return MemoryEpochs("elsewhere", of=epochs)
