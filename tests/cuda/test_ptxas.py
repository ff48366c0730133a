"""What the compiler says of the kernels (build/cuda/ptxas.txt): none keeps registers in memory, none of the hot ones uses local memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import ROOT

REPORT = ROOT / "build/cuda/ptxas.txt"
ARCHITECTURES = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}
NVCC = shutil.which("nvcc") or ("/usr/local/cuda/bin/nvcc" if Path("/usr/local/cuda/bin/nvcc").exists() else None)

# Kernels of which each token's time is made; each must be among those reported.
HOT = (
    "matvec_kernel",
    "several_kernel",
    "attend_decode",
    "attend_prefill",
    "attend_fp32",
    "heads_kernel",
    "rope_append",
    "rmsnorm",
    "mix_kernel",
    "rule_kernel",
    "group_kernel",
    "score_codes",
    "code_append",
    "dequantise_kernel",
    "score_kernel",
    "router",
    "step_kernel",
)
# Bytes for each thread, at most, on the architecture that needs most; no other kernel spills any. Heads of 256
# components, 16 heads of 128 or 80 that attend to selected rows, prompts of 128, and bounds that let another block live
# beside this one, want a few registers more than there are.
SPILLS = {
    "attend_decode_fp16ILi80ELi16E4seen": 16,
    "attend_decode_fp16ILi128ELi16E9seen_rows": 16,
    "attend_decode_fp16ILi256ELi8E9seen_rows": 8,
    "attend_decode_int8ILi64ELi8E9seen_rows": 12,
    "attend_decode_int8ILi64ELi16E9seen_rows": 72,
    "attend_decode_int8ILi128ELi16E4seen": 8,
    "attend_decode_int8ILi256ELi8E": 48,
    "attend_fp32ILi512E": 24,  # on sm_80 alone
    "attend_fp32ILi640E": 40,  # likewise
    "attend_prefill_fp16ILi128E6__half": 36,
    "step_kernel": 96,  # where a phase begins, not in its loops
}


def allowed(name):
    return max((n for kernel, n in SPILLS.items() if kernel in name), default=0)


def known_architectures():
    listed = subprocess.run([NVCC, "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout
    return ARCHITECTURES & {word.replace("compute_", "sm_") for word in listed.split()}


@pytest.fixture(scope="module")
def kernels():
    """(name, architecture) -> {"stack", "stores", "loads", "registers"}"""
    if not NVCC or os.environ.get("NVCC") == "":
        pytest.skip("no nvcc on this machine")
    assert REPORT.exists(), "build/cuda/ptxas.txt is missing: `make cuda` writes it"
    found, key = {}, None
    for line in REPORT.read_text().splitlines():
        if match := re.search(r"Compiling entry function '(\w+)' for '(sm_\w+)'", line):
            key = match[1], match[2].rstrip("a")
            found[key] = {}
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if key and "stack" not in found[key]:  # what follows without an entry is of a function that was not inlined
                found[key].update(zip(("stack", "stores", "loads"), map(int, match.groups()), strict=True))
        elif key and (match := re.search(r"Used (\d+) registers", line)):
            found[key]["registers"] = int(match[1])
    return found


def test_every_architecture_is_built(kernels):
    built = {architecture for _, architecture in kernels}
    assert built == known_architectures()
    names = [{name for name, architecture in kernels if architecture == one} for one in built]
    assert names[0] and all(one == names[0] for one in names)


def test_hot_kernels_are_reported(kernels):
    for hot in HOT:
        assert any(hot in name for name, _ in kernels), hot


def test_no_kernel_spills(kernels):
    wrong = [
        f"{name} {arch}: {sizes}"
        for (name, arch), sizes in kernels.items()
        if sizes["stores"] > allowed(name) or (sizes["loads"] and not sizes["stores"])
    ]
    assert not wrong, "\n".join(wrong)


def test_hot_kernels_use_no_local_memory(kernels):
    wrong = [
        f"{name} {arch}: {sizes}"
        for (name, arch), sizes in kernels.items()
        if sizes["stack"] > allowed(name) and any(hot in name for hot in HOT)
    ]
    assert not wrong, "\n".join(wrong)
