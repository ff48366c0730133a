"""What the Python tests share: the program under test, and the bundled model, converted once for each run.

YALM_VARIANT names the build: release (default), or a sanitizer's."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import BUILD, ROOT, SHARED, VARIANT, built, convert_directory


@pytest.fixture(scope="session")
def yalm():
    """Path of the command line program."""
    return built(ROOT / "yalm" if VARIANT == "release" else BUILD / "yalm")


@pytest.fixture(scope="session")
def isas():
    """Instruction sets that this machine can run."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = set(cpu.partition("\nflags")[2].partition("\n")[0].split())
    avx512 = {"avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl"}
    vnni = avx512 | {"avx512_vnni"}
    amx = vnni | {"avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}
    needs = {"avx2": {"avx2", "fma", "f16c"}, "avx512": avx512, "avx512vnni": vnni, "amx": amx}
    return ["scalar", *(isa for isa, need in needs.items() if need <= flags)]


@pytest.fixture(scope="session")
def fable(tmp_path_factory):
    """The bundled model, converted."""
    return convert_directory(ROOT / "models/fable-4m", tmp_path_factory.mktemp("fable") / "fable-4m.bin")


@pytest.fixture(scope="session")
def shared():
    """Real vocabularies and texts that lie beside some checkouts."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not there")
    return SHARED
