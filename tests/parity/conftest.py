"""The oracle, checkpoints made by it, and the largest differences the session met."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from . import product
from .checkpoints import Checkpoints
from .client import Oracle


class Differences:
    """The largest difference seen in each group of comparisons, and the limit it is held to."""

    def __init__(self) -> None:
        self.largest: dict[str, tuple[float, float, int]] = {}

    def check(self, group: str, ours: NDArray[np.float32], reference: NDArray[np.float32], limit: float) -> None:
        """Compare arrays of one shape; the largest difference must not exceed `limit`."""
        assert ours.shape == reference.shape, f"{group}: ours is {ours.shape}, the reference's {reference.shape}"
        assert np.isfinite(ours).all(), f"{group}: ours is not finite"
        found = float(np.abs(ours.astype(np.float64) - reference).max())
        largest, _, comparisons = self.largest.get(group, (0.0, limit, 0))
        self.largest[group] = (max(largest, found), limit, comparisons + 1)
        assert found <= limit, f"{group}: differs from ModelScope by {found:.2e}; at most {limit:.0e} is rounding"


DIFFERENCES = pytest.StashKey[Differences]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "parity: holds this package against ModelScope's own code")
    config.stash[DIFFERENCES] = Differences()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.parity)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    largest = config.stash[DIFFERENCES].largest
    if not largest:
        return
    terminalreporter.section("largest differences from ModelScope")
    for group, (found, limit, comparisons) in sorted(largest.items()):
        terminalreporter.line(f"{group:<42} {found:9.2e}  limit {limit:.0e}  {comparisons} comparisons")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small matrices gain nothing from a second thread, and waiting for it is slow on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def differences(pytestconfig: pytest.Config) -> Differences:
    return pytestconfig.stash[DIFFERENCES]


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    oracle = Oracle(tmp_path_factory.mktemp("oracle"))
    yield oracle
    oracle.close()


@pytest.fixture(scope="session")
def checkpoints(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    return Checkpoints(oracle, tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="session")
def answer() -> product.Answer:
    """What is held against ModelScope's pipeline on every checkpoint. To judge another way, name it here."""
    return product.answer_with_model


@pytest.fixture(scope="session")
def exported_answer() -> product.Answer:
    """The same through exported stages: the real thing, on few checkpoints, for an export takes half a minute."""
    return product.answer_with_stages
