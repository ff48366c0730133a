"""The steps of gpu_check.py that measure: single kernels, ladders, whole models, long contexts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time

import random_model

from .check import StepError
from .report import ATTENTION_LAYERS

# Models: (preset of tools/random_hf_model.py, dtype). The first one's launches are timed in several ways, and FULL
# ones are measured wholly.
LLAMA, MISTRAL = ("llama-3.2-1b", "bf16"), ("mistral-7b-v0.2", "fp16")
SMALL_LLAMA, SMALL_MISTRAL = ("tiny-gqa", "bf16"), ("tiny-window", "fp16")
QUANTISED = ("q8", "fp8", "q4")
DEPTHS, PROMPTS, GENERATED, LONG = [0, 4096, 32768], [512, 4096], 64, [32768, 65536, 131072]
SMALL_DEPTHS, SMALL_PROMPTS, SMALL_GENERATED, SMALL_LONG = [0, 16], [8, 16], 2, [80]

# What decides how a token's kernels are launched: YALM_CUDA_WITHOUT leaves it out.
LAUNCHES = {
    "graph, the fastest form": "step",
    "graph, overlapped": "step,turns",
    "graph, all but products overlapped": "step,turns,products",
    "graph": "step,overlap",
    "overlapped": "step,graph",
    "one by one": "step,graph,overlap",
}


def lists(check):
    """(depths, prompts, generated tokens, long contexts)"""
    if check.emulated:
        return SMALL_DEPTHS, SMALL_PROMPTS, SMALL_GENERATED, SMALL_LONG
    return DEPTHS, PROMPTS, GENERATED, LONG


def names(check):
    return (SMALL_LLAMA, SMALL_MISTRAL) if check.emulated else (LLAMA, MISTRAL)


def comma(numbers):
    return ",".join(map(str, numbers))


# ------------------------------------------------------------------------------------------- single kernels


def shape_arguments(preset, dtype):
    c = random_model.normalised_config(preset)
    numbers = {"dim": "hidden_dim", "ffn": "ffn_dim", "heads": "n_heads", "kv": "n_kv_heads", "head_dim": "head_dim"}
    numbers["vocab"] = "vocab_size"
    # bfloat16 matrices become float16 on the device (src/cuda/as_fp16.cu).
    words = [f"name={preset} {dtype}", f"dtype={'fp16' if dtype == 'bf16' else dtype}"]
    return words + [f"{key}={c[value]}" for key, value in numbers.items()]


def bench_lines(check, log, program, *words):
    """The JSON objects that a bench prints, those of one that did not end too. Raises where it failed, after adding them."""
    if not (check.programs / "bench" / program).exists():
        raise StepError(f"{program} was not built")
    rows, failure = [], None
    try:
        text = check.run(log, [check.programs / "bench" / program, *words]).stdout
    except StepError as why:
        text, failure = (check.logs / f"{log}.out").read_text(encoding="utf-8", errors="replace"), why
    for line in text.splitlines():
        if line.startswith("{") and line.endswith("}"):
            rows.append(json.loads(line))
    return rows, failure


def bench_program(check, to, log, program, *words):
    rows, failure = bench_lines(check, log, program, *words)
    if rows and "limits" in rows[0]:
        check.found.setdefault("limits", {}).update(rows.pop(0)["limits"])
    check.found.setdefault(to, []).extend(rows)
    if failure:
        raise failure


def bench_kernels(check):
    depths, prompts, _, _ = lists(check)
    works = []
    for preset, dtype in names(check):
        words = [*shape_arguments(preset, dtype), f"depths={comma(depths)}", f"prompts={comma(prompts)}"]
        works.append((f"{preset} {dtype}", words))
    for dtype in QUANTISED[:1] if check.emulated else QUANTISED:
        preset = names(check)[1][0]
        works.append((f"{preset} {dtype}", [*shape_arguments(preset, dtype), f"prompts={comma(prompts)}"]))
    return check.each(
        [
            (name, lambda name=name, words=words: bench_program(
                check, "kernels", f"kernels-{name.replace(' ', '-')}", "cuda_kernels", *words))
            for name, words in works
        ]
    )  # fmt: skip


def bench_ladders(check):
    depths, _, _, _ = lists(check)
    works = []
    for preset, dtype in names(check):
        words = [word for word in shape_arguments(preset, dtype) if not word.startswith("name=")] + [f"name={preset}"]
        deep = f"depths={comma(depth for depth in depths if depth)}"
        works.append((f"attention-{preset}", "cuda_attention_ladder", [*words, deep]))
        works.append((f"matvec-{preset}", "cuda_matvec_ladder", words))
    return check.each(
        [
            (name, lambda name=name, program=program, words=words: bench_program(
                check, "ladders", f"ladder-{name}", program, *words))
            for name, program, words in works
        ]
    )  # fmt: skip


# ------------------------------------------------------------------------------------------- whole models


def make_model(check, preset, dtype, context=None, **changes):
    """A model with random weights, with codebooks where it is one for long contexts."""
    label = "".join(f"-{value}" for value in [context, *changes.values()] if value)
    path = check.models / f"{preset}-{dtype}{label}.bin"
    if not path.exists():
        program = check.build / "bench/random_model"
        if not program.exists():
            raise StepError("bench/random_model was not built")
        os.environ.update(check.environment)  # where the carried libraries are
        changes |= {"context_length": context} if context else {}
        try:
            random_model.write(program, path, preset, dtype, **changes)
        except subprocess.CalledProcessError as error:
            path.unlink(missing_ok=True)
            raise StepError(f"{path.name}: {(error.stderr or '').strip()[-200:]}") from None
        if context:
            random_model.write_codebooks(path, {**random_model.normalised_config(preset), **changes})
    return path


def throughput(check, name, model, *words, environment=None, **about):
    """One run of -m throughput; its rows, with what they are about."""
    command = [check.yalm, model, "-m", "throughput", "-d", "cuda", "-o", "json", "-q", *words]
    done = check.run(name, command, environment=environment)
    check.found.setdefault("models", []).extend(dict(row, **about) for row in json.loads(done.stdout))


def decode_words(check, depths, generated):
    repetitions = 1 if check.emulated else 3
    return ["-p", 0, "-n", generated, "-r", repetitions, "--depth", comma(depths), "--set", "throughput.fill=random"]


def bench_model(check, preset, dtype, depths, prompts):
    generated = lists(check)[2]
    model = make_model(check, preset, dtype)
    name, about = f"{preset}-{dtype}", {"preset": preset, "dtype": dtype, "how": ""}
    repetitions = 1 if check.emulated else 3
    return check.each([
        (f"decode {name}", lambda: throughput(
            check, f"decode-{name}", model, *decode_words(check, depths, generated), **about)),
        (f"prefill {name}", lambda: throughput(
            check, f"prefill-{name}", model, "-p", comma(prompts), "-n", 0, "-r", repetitions, **about)),
    ])  # fmt: skip


def bench_launches(check):
    """Decode with and without the graph, with and without overlapping launches: what decides which of them it is."""
    preset, dtype = names(check)[0]
    model, generated = make_model(check, preset, dtype), lists(check)[2]
    return check.each([
        (how, lambda how=how, without=without: throughput(
            check, f"launch-{how.replace(', ', '-').replace(' ', '-')}", model, *decode_words(check, [0], generated),
            environment={"YALM_CUDA_WITHOUT": without}, preset=preset, dtype=dtype, how=how))
        for how, without in LAUNCHES.items()
    ])  # fmt: skip


def time_start(check, preset, dtype):
    """From the start of the process to the end after one token, the model's file in memory."""
    model = make_model(check, preset, dtype)
    (check.out / "start.txt").write_text("1 2 3 4 5", encoding="ascii")
    times = []
    for _ in range(1 if check.emulated else 3):
        begin = time.monotonic()
        check.run("start", [check.yalm, model, "-d", "cuda", "--tokens", check.out / "start.txt", "-n", "1", "-q"])
        times.append(round(time.monotonic() - begin, 3))
    check.found["start"] = {"model": model.name, "bytes": model.stat().st_size, "seconds": times}


def bench_first(check):
    depths, prompts, _, _ = lists(check)
    preset, dtype = names(check)[0]
    results = [
        ("model", lambda: bench_model(check, preset, dtype, depths, prompts)),
        ("launches", lambda: bench_launches(check)),
    ]
    try:
        return check.each(results)
    finally:
        forget_models(check)


def bench_second(check):
    depths, prompts, _, _ = lists(check)
    preset, dtype = names(check)[1]
    results = [
        ("model", lambda: bench_model(check, preset, dtype, depths, prompts)),
        ("start", lambda: time_start(check, preset, dtype)),
    ]
    try:
        return check.each(results)
    finally:
        forget_models(check)


def bench_quantised(check):
    depths, prompts, _, _ = lists(check)
    works = []
    for dtype in QUANTISED[-1:] if check.emulated else QUANTISED:

        def work(dtype=dtype):
            try:
                bench_model(check, names(check)[1][0], dtype, depths[:2], prompts[-1:])
            finally:
                forget_models(check)

        works.append((dtype, work))
    return check.each(works)


def forget_models(check):
    for path in [*check.models.glob("*.bin"), *check.models.glob("*.nomad")]:
        path.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------- long contexts


WAYS = {
    "dense": [],
    "int8 cache": ["--kv", "int8"],
    "sparq 1/8": ["--attention", "sparq", "--attention-ratio", "1/8"],
    "hybrid": ["--attention", "hybrid"],
}


def bench_ways(check, model, preset, dtype, depths):
    """Decode at several depths, by method of attention and type of cache."""
    generated = lists(check)[2]
    return check.each([
        (f"{preset}, {how}", lambda how=how, words=words: throughput(
            check, re.sub(r"\W+", "-", f"long-{preset}-{how}"), model, *decode_words(check, depths, max(2, generated // 4)),
            *words,
            preset=preset, dtype=dtype, how=how))
        for how, words in WAYS.items()
    ])  # fmt: skip


def bench_attention(check):
    """Attention by itself: its kernels, with 8 and with 32 KV heads; then models whose matrices are small. What depth
    0 takes is not attention."""
    preset, long = names(check)[1][0], lists(check)[3]
    works = []
    for kv_heads in (2,) if check.emulated else (8, 32):
        label = f"{kv_heads} KV heads"
        words = [word for word in shape_arguments(preset, "fp16") if not word.startswith(("name=", "kv="))]
        words += [f"name={label}", f"kv={kv_heads}", f"depths={comma(long)}"]
        changes = {"n_layers": ATTENTION_LAYERS, "hidden_dim": 128, "ffn_dim": 128, "vocab_size": 512}
        changes |= {"n_kv_heads": kv_heads, "sliding_window": 0}

        def kernels(words=words, kv_heads=kv_heads):
            bench_program(check, "kernels", f"methods-{kv_heads}", "cuda_methods", *words)

        def model(label=label, changes=changes):
            path = make_model(check, preset, "fp16", 2 * long[-1], **changes)
            return bench_ways(check, path, label, "fp16", [0, *long])

        works += [(f"kernels of {label}", kernels), (label, model)]
    try:
        return check.each(works)
    finally:
        forget_models(check)


def bench_long(check):
    """A whole model: mistral's shape with q4 weights."""
    long = lists(check)[3]
    preset = names(check)[1][0]
    try:
        return bench_ways(check, make_model(check, preset, "q4", 2 * long[-1], sliding_window=0), preset, "q4", long)
    finally:
        forget_models(check)
