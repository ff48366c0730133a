"""What `make gpu-check` measures, every step of it on the emulated GPU: each comes to an end, with what it should have found. Its times mean nothing."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest
from harness import BUILD, HANG, ROOT, VARIANT, built

pytestmark = pytest.mark.skipif(VARIANT != "emulated", reason="of the emulated GPU")
STEPS = "kernels,ladders,llama,mistral,quantised,attention,long,sanitizer"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    for name in ("cuda_kernels", "cuda_attention_ladder", "cuda_matvec_ladder", "cuda_methods", "random_model"):
        built(BUILD / "bench" / name)
    folder, tools = tmp_path_factory.mktemp("measuring"), tmp_path_factory.mktemp("tools")
    # Runs the program, and finds nothing.
    (tools / "compute-sanitizer").write_text(
        "#!/bin/sh\nshift 4\necho '========= ERROR SUMMARY: 0 errors'\nexec \"$@\"\n"
    )
    (tools / "compute-sanitizer").chmod(0o755)
    done = subprocess.run(
        [sys.executable, ROOT / "tools/gpu_check.py", "--emulated", "--output", folder, "--only", STEPS],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert not list(folder.glob("*.bin")), "models are left"
    return json.loads((folder / "gpu-check.json").read_text())


def test_no_step_fails(found):
    results = {step["name"]: step["result"] for step in found["steps"]}
    assert set(results) == {"machine", *STEPS.split(",")}
    assert all(result.startswith(("ok", "skipped: refused")) for result in results.values()), results


def test_kernels_are_timed(found):
    kernels = {(row["model"], row["phase"], row["kernel"]) for row in found["kernels"]}
    for model in ("tiny-gqa bf16", "tiny-window fp16"):
        for kernel in ("qkv", "o", "gate-up", "down", "classifier", "rope-append", "attention", "sample"):
            assert (model, "decode", kernel) in kernels
        assert (model, "prefill", "attention") in kernels
    for kernel in (
        "dense fp16",
        "dense int8",
        "sparq: score",
        "sparq: select",
        "sparq: gather",
        "sparq: layer",
        "hybrid: score",
        "hybrid: layer",
    ):
        assert ("2 KV heads", "attention", kernel) in kernels
    assert all(row["seconds"] > 0 and row["bytes"] > 0 and math.isfinite(row["of_read"]) for row in found["kernels"])


def test_every_step_of_the_ladders_is_right(found):
    steps = {(row["ladder"], row["step"]) for row in found["ladders"]}
    assert {
        ("attention", "block per head"),
        ("attention", "the engine's"),
        ("matvec", "thread per row"),
        ("matvec", "the engine's"),
    } <= steps
    assert all(0 <= row["error"] < 1e-3 for row in found["ladders"]), found["ladders"]


def test_models_are_timed(found):
    rows = {
        (row["preset"], row["dtype"], row["n_prompt"], row["n_gen"], row["n_depth"], row["how"])
        for row in found["models"]
    }
    assert ("tiny-gqa", "bf16", 0, 2, 16, "") in rows and ("tiny-window", "fp16", 16, 0, 0, "") in rows
    assert {row[5] for row in rows if row[0] == "tiny-gqa"} == {
        "",
        "graph, the fastest form",
        "graph, overlapped",
        "graph, all but products overlapped",
        "graph",
        "overlapped",
        "one by one",
    }
    assert all(row["avg_ts"] > 0 for row in found["models"])
    assert found["start"]["seconds"][0] > 0


def test_the_sanitizers_summaries_are_read(found):
    assert found["sanitizer"] == {f"{tool}: window": "0 errors" for tool in ("memcheck", "racecheck", "initcheck")}


def test_how_kernels_are_launched_changes_nothing(fable):
    command = [built(BUILD / "yalm"), fable, "-d", "cuda", "-i", "Once upon a time", "-n", "20", "--seed", "3", "-q"]
    texts = {
        subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=True,
            env={**os.environ, "YALM_CUDA_WITHOUT": without},
        ).stdout
        for without in ("", "turns", "turns,products", "graph", "overlap", "graph,overlap")
    }
    assert len(texts) == 1 and texts != {""}
