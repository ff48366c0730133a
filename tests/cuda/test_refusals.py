"""What the CUDA half refuses, each by one line and its exit code; on -d auto the CPU takes over and says why. The emulated GPU's environment makes
it another machine."""

from __future__ import annotations

import dataclasses
import os
import subprocess

import cases
import pytest
from harness import BUILD, HANG, ROOT, THOROUGH, VARIANT, built, convert_directory

pytestmark = pytest.mark.skipif(VARIANT != "emulated", reason="of the emulated GPU")
RUN = ["-i", "Once upon a time", "-n", "2", "--temp", "0"]

MACHINES = [
    ({"YALM_EMULATED_DRIVER": "0"}, "no NVIDIA driver is installed"),
    ({"YALM_EMULATED_DRIVER": "11080"}, "the NVIDIA driver runs CUDA 11.8, this build needs 13.0 or later"),
    ({"YALM_EMULATED_DEVICES": "0"}, "the driver finds no GPU"),
    ({"YALM_EMULATED_CAPABILITY": "7.5"}, "has compute capability 7.5, 8.0 or later is needed"),
]
OPTIONS = [
    (["--attention", "nomad"], "nomad attention does not run on the GPU"),
    (["--attention", "hybrid", "--set", "hybrid.codes=1/2"], "hybrid.codes: found 0.5"),
    (["--set", "machine.isa=avx2"], "instruction sets are the CPU's"),
    (["--activations", "int8"], "activations int8 are the CPU's (-d cpu)"),
    (["--activations", "fp32"], "activations fp32 are the CPU's (-d cpu)"),
]


def yalm(model, *words, **environment):
    command = [built(BUILD / "yalm"), model, *RUN, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, env={**os.environ, **environment})


def refuses(done, code, text):
    lines = [line for line in done.stderr.splitlines() if line.startswith("yalm: ")]
    assert done.returncode == code and done.stdout == "" and len(lines) == 1 and text in lines[0], done.stderr


@pytest.mark.parametrize("environment, text", MACHINES, ids=[text for _, text in MACHINES])
def test_machines(fable, environment, text):
    refuses(yalm(fable, "-d", "cuda", **environment), 1, text)
    done = yalm(fable, "-d", "auto", **environment)
    assert done.returncode == 0 and "\ncpu: " in done.stderr and "cuda" not in done.stderr


@pytest.mark.parametrize("words, text", OPTIONS, ids=[text for _, text in OPTIONS])
def test_options(fable, words, text):
    refuses(yalm(fable, "-d", "cuda", *words), 2, text)


@pytest.mark.parametrize("dtype", ["q8", "q4", "fp8", "fp8_e5m2", "bf12"] if THOROUGH else ["q4"])
def test_quantised_weights_are_not_refused(tmp_path, dtype):
    model = convert_directory(ROOT / "models/fable-4m", tmp_path / "model.bin", "--dtype", dtype)
    done = yalm(model, "-d", "auto")
    assert done.returncode == 0 and "\ncuda: Emulated GPU, " in done.stderr and "(not cuda: " not in done.stderr
    assert done.stdout == yalm(model, "-d", "cpu").stdout


def test_bf12_weights_are_bf16_there(tmp_path):
    logits = []
    for dtype in ("bf16", "bf12"):
        model = convert_directory(ROOT / "models/fable-4m", tmp_path / f"{dtype}.bin", "--dtype", dtype)
        text = ["-m", "perplexity", "-f", ROOT / "models/fable-4m/heldout.txt", "--ctx", "64", "--max-tokens", "128"]
        command = [built(BUILD / "yalm"), model, "-d", "cuda", *text, "--save-logits", tmp_path / dtype]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
        assert done.returncode == 0, done.stderr
        logits.append((tmp_path / dtype).read_bytes())
    assert logits[0] == logits[1]


def test_too_little_memory(fable):
    free = {"YALM_EMULATED_FREE": str(258 << 20)}
    refuses(yalm(fable, "-d", "cuda", **free), 4, "not enough device memory for a context of")
    done = yalm(fable, "-d", "auto", **free)
    assert done.returncode == 0 and "\ncpu: " in done.stderr and "not enough device memory" in done.stderr


def test_auto_takes_the_gpu(fable):
    done = yalm(fable, "-d", "auto")
    assert done.returncode == 0 and "\ncuda: Emulated GPU, " in done.stderr
    assert done.stdout == yalm(fable, "-d", "cpu").stdout


def test_large_recurrent_states(tmp_path):
    config = cases.generator.qwen3_5(96, 160, 3, 4, 2, 320, 256, head_dim=24, key_heads=1, key_dim=520)
    case = dataclasses.replace(cases.CASES["tiny-qwen3_5"], config=config)
    model = convert_directory(cases.write_model(case, tmp_path / "source"), tmp_path / "model.bin")
    (tmp_path / "ids").write_text("1 2 3")
    command = [built(BUILD / "yalm"), model, "--tokens", tmp_path / "ids", "-n", "2"]
    done = subprocess.run([*command, "-d", "cuda"], capture_output=True, text=True, check=False)
    line = "recurrent layers whose heads have keys of 520 do not run on the GPU, only up to 512"
    refuses(done, 2, f"device cuda: {line}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and line in done.stderr


NOT_SELECTING = {
    "tiny-bloom": "scores fall with the distance (ALiBi)",
    "tiny-deepseek-v2-lite": "tokens keep latents, not keys (MLA)",
}


@pytest.mark.parametrize("name, why", NOT_SELECTING.items())
def test_methods_and_other_scores(tmp_path, name, why):
    model = convert_directory(cases.write_model(cases.CASES[name], tmp_path / "source"), tmp_path / "model.bin")
    (tmp_path / "ids").write_text("1 2 3")
    command = [built(BUILD / "yalm"), model, "--tokens", tmp_path / "ids", "-d", "cuda", "--attention", "sparq"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refuses(done, 2, f"attention: found sparq, but this model's {why}: use dense")


@pytest.mark.parametrize("name", ["tiny-gemma2", "tiny-gpt-oss"])
def test_methods_with_scores_of_their_own(tmp_path, name):
    model = convert_directory(cases.write_model(cases.CASES[name], tmp_path / "source"), tmp_path / "model.bin")
    (tmp_path / "ids").write_text("1 2 3")
    command = [built(BUILD / "yalm"), model, "--tokens", tmp_path / "ids", "-n", "2", "--attention", "sparq"]
    done = subprocess.run([*command, "-d", "cuda"], capture_output=True, text=True, check=False)
    refuses(
        done,
        2,
        "attention: found sparq, but this model caps scores or has logits without keys, which the GPU has with dense "
        "attention alone (-d cpu has all)",
    )
    done = subprocess.run([*command, "-d", "cpu"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


LONG = {("tiny-gemma4", "global_head_dim", 528): (528, 512), ("tiny-deepseek-v3", "kv_lora_rank", 626): (642, 640)}


@pytest.mark.parametrize("changed, lengths", LONG.items(), ids=[name for name, _, _ in LONG])
def test_heads_that_are_too_long(tmp_path, changed, lengths):
    name, key, value = changed
    case = cases.CASES[name]
    case = dataclasses.replace(case, config=case.config | {key: value})
    model = convert_directory(cases.write_model(case, tmp_path / "source"), tmp_path / "model.bin")
    (tmp_path / "ids").write_text("1 2 3")
    command = [built(BUILD / "yalm"), model, "--tokens", tmp_path / "ids", "-n", "2"]
    done = subprocess.run([*command, "-d", "cuda"], capture_output=True, text=True, check=False)
    line = "heads of {} components do not run on the GPU, only up to {} (-d cpu runs them)".format(*lengths)
    refuses(done, 2, f"device cuda: {line}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and line in done.stderr
