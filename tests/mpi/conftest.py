"""What the tests of several ranks share; all are skipped, with the reason, where mpirun or libyalm-mpi.so is not."""

import shutil
import sys
from pathlib import Path

import pytest
from harness import ROOT, VARIANT

sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests/parity")]

import hosts as making  # noqa: E402


def pytest_collection_modifyitems(items):
    why = "mpirun is not installed" if not shutil.which("mpirun") else ""
    if not why and (VARIANT != "release" or not (ROOT / "libyalm-mpi.so").exists()):
        why = "libyalm-mpi.so is not there: `make mpi` builds it"
    for item in items:
        if why and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def hosts(tmp_path_factory):
    """Four hosts: network namespaces where these are allowed, else this one."""
    why = making.why_no_namespaces()
    if why:
        print(f"ranks are processes side by side, not hosts of their own: {why}")
        yield making.Here()
        return
    with making.Hosts(4, tmp_path_factory.mktemp("hosts")) as four:
        yield four
