"""Pass keys and perplexity of the bundled model on the GPU and on the CPU, by the command line: each format and attention method finds the same keys
and says the same where it finds none, and has the same perplexity within rounding."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from harness import BUILD, ROOT, VARIANT, built, convert_directory

pytestmark = pytest.mark.skipif(VARIANT != "emulated", reason="of the emulated GPU")

SPARQ = ("--attention", "sparq", "--set", "sparq.from=1", "--set", "sparq.min_k=32")
HYBRID = ("--attention", "hybrid", "--codebooks", "CODEBOOKS", "--set", "hybrid.from=1", "--set", "hybrid.min_k=10")
HYBRID += ("--set", "hybrid.codes=1", "--attention-ratio", "1/32")  # all codes, as the GPU
# Way -> (type of the matrices, options, how far the devices' nats a token may be apart). Found: 3e-6 with 16-bit
# weights and caches, 6e-6 with q8 and q4; 3e-5 with an int8 cache, in which integers become the next one. Where a
# method selects, keys at the cut change places: SparQ 4.4e-4, with an int8 copy, which the CPU makes later; the hybrid,
# whose ten keys are drawn and stand for many, 1.9e-4, with codebooks of two other seeds 3.6e-4 and 5.3e-4. (Another
# seed alone makes 1e-2.)
WAYS = {
    "dense": ("bf16", (), 2e-5),
    "q8": ("q8", (), 3e-5),
    "q4": ("q4", (), 3e-5),
    "int8-cache": ("bf16", ("--kv", "int8"), 1e-4),
    "sparq": ("bf16", SPARQ, 1e-3),
    "sparq-q4": ("bf16", (*SPARQ, "--set", "sparq.copy=q4"), 1e-3),
    "hybrid": ("bf16", HYBRID, 1e-3),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models by type, codebooks, and other text to measure on."""
    folder = tmp_path_factory.mktemp("quality")
    for dtype in sorted({way[0] for way in WAYS.values()}):
        convert_directory(ROOT / "models/fable-4m", folder / f"{dtype}.bin", "--dtype", dtype)
    heldout = (ROOT / "models/fable-4m/heldout.txt").read_text(encoding="utf-8")
    (folder / "measured.txt").write_text(heldout[:4000], encoding="utf-8")
    (folder / "learned.txt").write_text(heldout[100000:130000], encoding="utf-8")
    run(folder, "dense", "-m", "calibrate", "-f", folder / "learned.txt", "-o", folder / "codebooks.nomad")
    return folder


def run(folder, way, *words, codes=(0,), **environment):
    dtype, options, _ = WAYS[way]
    options = [folder / "codebooks.nomad" if word == "CODEBOOKS" else word for word in options]
    if "cpu" in words and dtype == "bf16":  # whose own rounding would add to the GPU's
        options += ["--activations", "fp32"]
    command = [built(BUILD / "yalm"), folder / f"{dtype}.bin", *words, "-q"]
    environment = {**os.environ, **environment}
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode in codes, done.stderr
    return done.stdout


def nats(folder, way, device):
    """Of 128 tokens of a text, each evaluated alone, behind a prompt of 64."""
    window = ("--ctx", "192", "--max-tokens", "192", "--set", "perplexity.decode_from=64")
    found = run(folder, way, "-m", "perplexity", "-f", folder / "measured.txt", *window, "-d", device)
    return float(re.search(r"over 128 tokens, ([\d.]+) each", found)[1])


@pytest.mark.parametrize("way", WAYS)
def test_perplexity_is_the_cpus(folder, way):
    cpu, cuda, bound = nats(folder, way, "cpu"), nats(folder, way, "cuda"), WAYS[way][2]
    assert abs(cuda - cpu) <= bound
    if way != "dense":  # else another way could have gone on the GPU, and nobody would see it
        assert abs(cpu - nats(folder, "dense", "cpu")) > 2 * bound


def test_one_kernel_merges_splits_of_keys(folder):
    """Behind 300 tokens, with so many multiprocessors that each KV head's keys are split between two of them."""
    gpu = {"YALM_EMULATED_CAPABILITY": "9.0", "YALM_EMULATED_MULTIPROCESSORS": "5"}
    said = subprocess.run(
        [built(BUILD / "yalm"), folder / "bf16.bin", "-d", "cuda", "-i", "Once", "-n", "1"],
        capture_output=True, text=True, timeout=600, env={**os.environ, **gpu},
    )  # fmt: skip
    assert "one kernel a token" in said.stderr
    words = (
        "-m",
        "perplexity",
        "-f",
        folder / "measured.txt",
        "--ctx",
        "320",
        "--max-tokens",
        "320",
        "--set",
        "perplexity.decode_from=300",
    )
    nats = [
        float(re.search(r"over 20 tokens, ([\d.]+) each", run(folder, "dense", *words, "-d", device, **environment))[1])
        for device, environment in (("cpu", {}), ("cuda", gpu))
    ]
    assert abs(nats[0] - nats[1]) <= WAYS["dense"][2]


@pytest.mark.parametrize("ctx", (256, 512))
@pytest.mark.parametrize("way", WAYS)
def test_pass_keys_are_the_cpus(folder, way, ctx):
    words = ("-m", "passkey", "--ctx", str(ctx), "--trials", "1", "--seed", str(ctx), "--set", "passkey.decode_last=12")
    cpu, cuda = (run(folder, way, *words, "-d", device, codes=(0, 1)) for device in ("cpu", "cuda"))
    assert cpu == cuda and "trial 1: key " in cpu
    if way == "dense":  # the model can
        assert ": found" in cpu
