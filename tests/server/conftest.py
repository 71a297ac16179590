from collections.abc import Iterator
from pathlib import Path

import pytest

from ofa_triton.client import Client
from ofa_triton.pipeline import Pipeline
from ofa_triton.server import TritonServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
def server(built: Path) -> Iterator[TritonServer]:
    """The real Triton over the small checkpoint."""
    with TritonServer(built / "repository") as running:
        yield running


@pytest.fixture
def client(server: TritonServer) -> Iterator[Client]:
    with Client(server.grpc_url) as connected:
        yield connected


@pytest.fixture(scope="session")
def pipeline(built: Path) -> Pipeline:
    """The same stages in this process."""
    return Pipeline(built / "onnx")
