"""One model on 2, 3 and 4 ranks, each on a host of its own: what one process computes and prints, and what happens
when a rank is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import embed_cases
import numpy as np
import pytest
from cases import Case, classic, generator, write_model
from harness import HANG, ROOT, THOROUGH, convert_directory, patience
from hosts import gone, ranks_of, run, start, wait_for_ranks

SHAPE = (128, 352, 3, 8, 4, 512, 256)  # four KV heads: up to four ranks
MODELS = {
    "dense": generator.llama(*SHAPE),
    "mixtral": generator.mixtral(*SHAPE[:1], 224, *SHAPE[2:], experts=4, active=2),
    "glm4-moe": generator.glm4_moe(*SHAPE[:1], 224, *SHAPE[2:], head_dim=40),
    "olmo2": generator.olmo2(*SHAPE),
    "gemma3": generator.gemma3(*SHAPE, head_dim=64, tied=True),
    "gpt-oss": generator.gpt_oss(128, 96, 4, 8, 4, 512, 256, 150000.0, head_dim=40),
    "gpt2": classic.presets()["tiny-gpt2"] | {"vocab_size": 512},
    "bloom": classic.presets()["tiny-bloom"] | {"vocab_size": 512},
    "cohere": classic.presets()["tiny-cohere"] | {"vocab_size": 512},
    "deepseek": generator.PRESETS["tiny-deepseek-v3"] | {"vocab_size": 512},
    "kimi": generator.PRESETS["tiny-kimi-linear"] | {"vocab_size": 512},
    "qwen3_5": generator.qwen3_5(*SHAPE, head_dim=32, key_heads=4, key_dim=24),
}
N_TOKENS = 96


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ids(folder):
    path = folder / "ids"
    values = np.random.default_rng(3).integers(3, 512, N_TOKENS)
    path.write_text(" ".join(map(str, values)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model_of(folder):
    made = {}

    def make(name, dtype):
        if (name, dtype) not in made:
            source = folder / name
            if not source.exists():
                write_model(Case(name, MODELS[name]), source)
            made[name, dtype] = convert_directory(source, folder / f"{name}-{dtype}.bin", "--dtype", dtype)
        return made[name, dtype]

    return make


def logits(command, out, more):
    arguments = ["-m", "perplexity", "--threads", 1, "--kv", "fp32", "--save-logits", out, *more]
    return [*command, *map(str, arguments)]


def differences(hosts, n, model, ids, folder, *more):
    """The largest difference of each row from one process's logits, in parts of their range."""
    more = ("--tokens", ids, *more)
    alone, together = folder / "alone.f32", folder / "together.f32"
    at = more.index("machine.wire=fp16") - 1 if "machine.wire=fp16" in more else len(more)
    here = [*more[:at], *more[at + 2 :]]
    subprocess.run(logits(["./yalm", str(model)], alone, here), cwd=ROOT, check=True, capture_output=True)
    code, _, err = run(hosts, n, *logits(["./yalm", model], together, more))
    assert code == 0, err
    ours, theirs = (np.fromfile(path, np.float32).reshape(-1, 512) for path in (together, alone))
    assert ours.shape == theirs.shape and len(ours) >= 50
    return np.abs(ours - theirs).max(1) / (theirs.max() - theirs.min())


FLOATS = ("--activations", "fp32")
INT16 = ("--activations", "int16")  # whose sums are exact: of 8 bits, what ranks round otherwise shows
# `make test` leaves these to `make test-mpi`: tests/engine/test_group.c has shown their arithmetic, and mpirun takes
# seconds to start.
thorough = pytest.mark.skipif(not THOROUGH, reason="make test-mpi runs it")


def case(*values, short=False):
    return pytest.param(*values, marks=() if short else thorough)


@pytest.mark.parametrize(
    "name, dtype, n, more, most",
    [
        case("dense", "fp32", 2, FLOATS, 1e-5, short=True),
        case("dense", "fp32", 3, FLOATS, 1e-5),
        case("dense", "fp32", 4, FLOATS, 1e-5, short=True),
        case("dense", "fp16", 4, FLOATS, 1e-5),
        case("dense", "bf16", 2, FLOATS, 1e-5),
        case("dense", "bf12", 3, FLOATS, 1e-5),
        case("dense", "fp8", 2, FLOATS, 1e-5),
        case("dense", "fp32", 2, (*FLOATS, "--set", "machine.wire=fp16"), 3e-3),
        case("dense", "q8", 3, (), 1e-3),
        case("dense", "q4", 3, INT16, 1e-3, short=True),
        case("mixtral", "fp32", 3, FLOATS, 1e-5, short=True),
        case("mixtral", "q4", 2, INT16, 1e-3),
        case("glm4-moe", "fp32", 2, FLOATS, 1e-5),
        case("olmo2", "fp32", 4, FLOATS, 1e-5),
        case("gemma3", "fp32", 2, FLOATS, 1e-5),
        case("gpt-oss", "fp32", 3, FLOATS, 1e-5),
        case("gpt2", "fp32", 4, FLOATS, 1e-5),
        case("bloom", "fp32", 3, FLOATS, 1e-5),
        case("cohere", "fp32", 2, FLOATS, 1e-5),
        case("deepseek", "fp32", 2, FLOATS, 1e-5),
        case("kimi", "fp32", 2, FLOATS, 1e-5),
        case("qwen3_5", "fp32", 2, FLOATS, 1e-5),
    ],
)
def test_logits_are_those_of_one_process(hosts, model_of, ids, folder, name, dtype, n, more, most):
    assert differences(hosts, n, model_of(name, dtype), ids, folder, *more).max() <= most


def test_hybrid_attention(hosts, model_of, ids, folder):
    """Each rank reads its heads of the codebooks; tokens after the 40th attend by them.

    Ranks add up sums in another order. A key at the very edge of the draw may then be drawn, or not: that row is another one.
    So it is between two instruction sets on one rank: 1 row of 56 between scalar and avx2 (1.6e-4), 6 between scalar and amx
    (4.4e-3). Where ranks take other ranks' heads of the codebooks, all rows are 0.3 and more away."""
    model, book = model_of("dense", "fp32"), folder / "book.nomad"
    words = ["./yalm", model, "-m", "calibrate", "--tokens", ids, "--set", "calibrate.samples=64", "-o", book]
    subprocess.run(list(map(str, words)), cwd=ROOT, check=True, capture_output=True)
    settings = ("hybrid.from=1", "hybrid.min_k=8", "perplexity.decode_from=40")
    more = [word for setting in settings for word in ("--set", setting)]
    rows = differences(hosts, 3, model, ids, folder, *FLOATS, "--attention", "hybrid", "--codebooks", book, *more)
    assert np.quantile(rows, 0.85) <= 1e-5 and rows.max() <= 1e-2, np.sort(rows)[::-1][:10]


def test_greedy_text(hosts, fable):
    words = ("./yalm", fable, "-i", "Once upon a time", "--temp", 0, "-n", 60, "-q")
    alone = subprocess.run([*map(str, words)], cwd=ROOT, check=True, capture_output=True)
    code, out, err = run(hosts, 2, *words)
    assert (code, out.strip()) == (0, alone.stdout.strip()), err  # mpirun gives rank 0 a terminal, where lines end


@thorough
def test_throughput(hosts, fable):
    code, out, err = run(hosts, 2, "./yalm", fable, "-m", "throughput", "-p", 16, "-n", 4, "-r", 1, "-o", "json", "-q")
    assert code == 0, err
    assert all(row["avg_ts"] > 0 for row in json.loads(out))


def test_served(hosts, fable):
    """In the first host's namespace, a client asks; ^C ends all ranks."""
    served = start(hosts, 2, "./yalm", fable, "-m", "serve", "--port", 0, "--parallel", 2)
    try:
        line = b""
        while b"http://" not in line:
            line = served.stderr.readline()
            assert line, "the server does not start"
        url = re.search(rb"http://[\d.]+:\d+", line)[0].decode()
        body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
        request = f"{url + '/v1/completions'!r}, {json.dumps(body).encode()!r}"
        ask = f"import urllib.request as r; print(r.urlopen({request}).read().decode())"
        client = [*hosts.inside(1), sys.executable, "-c", ask]
        answer = json.loads(subprocess.run(client, check=True, capture_output=True, timeout=HANG).stdout)
        alone = subprocess.run(
            ["./yalm", str(fable), "-i", "Once upon a time", "--temp", "0", "-n", "12", "-q", "--no-echo"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        assert answer["choices"][0]["text"] == alone.stdout.decode().removesuffix("\n")
        os.kill(ranks_of(fable)[0], signal.SIGINT)
        served.communicate(timeout=HANG)
        assert gone(fable)
    finally:
        end(served)


def resident_bytes(process):
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) * 1024


@thorough
def test_memory_of_each_rank(hosts, folder):
    """Half of the weights, half of the cache, and 64 MiB."""
    program, model = "build/release/bench/random_model", folder / "random.bin"
    subprocess.run(["make", "-s", program], cwd=ROOT, check=True)
    subprocess.run(
        [sys.executable, "bench/random_model.py", program, model, "tinyllama-1.1b", "q4", "8"], cwd=ROOT, check=True
    )
    (folder / "few-ids").write_text(" ".join(map(str, range(3, 40))), encoding="utf-8")
    words = (
        "./yalm",
        model,
        "--tokens",
        folder / "few-ids",
        "-n",
        200,
        "-T",
        2048,
        "--set",
        "text.ignore_eos=on",
        "--threads",
        1,
        "-q",
    )
    started = start(hosts, 2, *words)
    try:
        ranks, most = wait_for_ranks(model, 2), {}
        while started.poll() is None:
            for rank, process in ranks.items():
                with contextlib.suppress(OSError, TypeError):
                    most[rank] = resident_bytes(process)
            time.sleep(0.05)
        cache = 2 * 8 * 4 * 64 * 2 * 2048  # keys and values, of 8 layers' 4 heads of 64 components in fp16
        assert started.returncode == 0 and len(most) == 2
        assert max(most.values()) < (model.stat().st_size + cache) / 2 + (64 << 20)
        assert min(most.values()) > model.stat().st_size / 3
    finally:
        end(started)
        model.unlink()


# ------------------------------------------------------------------------------------------- GPUs

# Emulated ones, and a stand-in for NCCL; four on each host, so that one host does.
EMULATED = ROOT / "build/emulated/yalm"
GPUS = ("env", f"YALM_MPI_LIBRARY={ROOT}/libyalm-mpi.so", "YALM_EMULATED_DEVICES=4", EMULATED)
emulated = pytest.mark.skipif(not EMULATED.exists(), reason="`make VARIANT=emulated` builds it")


@emulated
def test_greedy_text_of_gpus(hosts, fable):
    words = (fable, "-d", "cuda", "-i", "Once upon a time", "--temp", 0, "-n", 8)
    alone = subprocess.run([*map(str, (EMULATED, *words))], cwd=ROOT, check=True, capture_output=True)
    code, out, err = run(hosts, 2, *GPUS, *words)
    assert (code, out.strip()) == (0, alone.stdout.strip()), err
    assert "\ncuda: 2 ranks, this one with Emulated GPU" in err


@emulated
@thorough
@pytest.mark.parametrize("attention", ["dense", "hybrid"])
def test_logits_of_gpus(hosts, model_of, ids, folder, attention):
    model, book = model_of("dense", "fp32"), folder / "gpus.nomad"
    more = ["--attention", attention]
    if attention == "hybrid":
        words = ["./yalm", model, "-m", "calibrate", "--tokens", ids, "--set", "calibrate.samples=64", "-o", book]
        subprocess.run(list(map(str, words)), cwd=ROOT, check=True, capture_output=True)
        settings = ("hybrid.from=1", "hybrid.min_k=8", "perplexity.decode_from=80")
        more += ["--codebooks", str(book), *(word for setting in settings for word in ("--set", setting))]
    common = ["-d", "cuda", "-m", "perplexity", "--kv", "fp32", "--tokens", str(ids), *more, "--save-logits"]
    alone, together = folder / "one-gpu.f32", folder / "gpus.f32"
    subprocess.run([str(EMULATED), str(model), *common, alone], cwd=ROOT, check=True, capture_output=True)
    code, _, err = run(hosts, 3, *GPUS, model, *common, together, timeout=HANG)
    assert code == 0, err
    ours, theirs = (np.fromfile(path, np.float32) for path in (together, alone))
    assert ours.shape == theirs.shape and np.abs(ours - theirs).max() <= 1e-5 * (theirs.max() - theirs.min())


@emulated
@thorough
@pytest.mark.parametrize("rank", [0, 1])
def test_rank_with_a_gpu_that_hangs(hosts, fable, rank):
    words = ("-d", "cuda", "-i", "Once", "--temp", 0, "-n", 10000, "-T", 20000, "--set", "text.ignore_eos=on")
    started = start(hosts, 2, *GPUS, fable, *words)
    try:
        ranks = wait_for_ranks(fable, 2)
        assert started.stdout.read(20)
        os.kill(ranks[rank], signal.SIGSTOP)
        lines = ends(started, fable, 1, within=12)
        assert len(lines) == 1 and re.search(rf"rank {rank} \(\S+\) has not answered for 5 seconds", lines[0])
    finally:
        end(started)


# ------------------------------------------------------------------------------------------- refusals


def refused(hosts, n, code, *words):
    found, out, err = run(hosts, n, *words)
    lines = [line for line in err.splitlines() if line.startswith("yalm: ")]
    assert (found, out, len(lines)) == (code, b"", 1), err
    return lines[0]


@thorough
def test_more_ranks_than_heads(hosts, fable):
    assert "ranks: found 3, expected at most 2" in refused(hosts, 3, 2, "./yalm", fable, "-i", "x")


def test_a_model_that_reads_whole_texts(hosts, folder):
    case = embed_cases.make_cases()["bert-mean"]
    model = convert_directory(embed_cases.write(case, folder / "bert"), folder / "bert.bin")
    line = refused(hosts, 2, 2, "./yalm", model, "-m", "embed", "-i", "x")
    assert "ranks: this model has attention both ways, which ranks do not share" in line


@thorough
def test_what_one_process_does_alone(hosts, fable, folder):
    assert "--session" in refused(hosts, 2, 2, "./yalm", fable, "-i", "x", "--session", folder / "kept")


def test_another_file_on_a_rank(hosts, fable, model_of):
    line = refused(
        hosts, 1, 3, "./yalm", fable, "-i", "x", ":", "-n", 1, "./yalm", model_of("dense", "fp32"), "-i", "x"
    )
    assert re.search(r"rank 1 \(\S+\): .*another model", line)


@pytest.mark.parametrize(
    "code, words, text",
    [(1, ("nowhere",), "nowhere: No such file"), (2, ("fable", "--bogus"), "unknown option '--bogus'")],
)
def test_a_rank_that_cannot_begin(hosts, fable, code, words, text):
    """Rank 0 does not wait for it."""
    words = [fable if word == "fable" else word for word in words]
    line = refused(hosts, 1, code, "./yalm", fable, "-i", "x", ":", "-n", 1, "./yalm", *words, "-i", "x")
    assert re.search(r"rank 1 \(\S+\): ", line) and text in line


# ------------------------------------------------------------------------------------------- losses


def end(started):
    if started.poll() is None:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


@pytest.fixture
def long_run(hosts, fable):
    """Three seconds of work at least, on two ranks, that has begun."""
    started = start(
        hosts, 2, "./yalm", fable, "-i", "Once", "--temp", 0, "-n", 100000, "-T", 200000, "--set", "text.ignore_eos=on"
    )
    try:
        ranks = wait_for_ranks(fable, 2)
        assert started.stdout.read(20)
        yield started, ranks
    finally:
        end(started)


def ends(started, fable, code, within=10):
    begin = time.monotonic()
    _, err = started.communicate(timeout=HANG)
    assert time.monotonic() - begin < patience(within) and started.returncode == code, err.decode()
    assert gone(fable)
    return [line for line in err.decode().splitlines() if line.startswith("yalm: ")]


def test_rank_that_hangs(long_run, fable):
    """Rank 0, so that another must tell; tests/engine/test_group.c loses others."""
    started, ranks = long_run
    os.kill(ranks[0], signal.SIGSTOP)
    lines = ends(started, fable, 1, within=12)  # the last seconds are mpirun's own
    assert len(lines) == 1 and re.search(r"rank 0 \(\S+\) has not answered for 5 seconds", lines[0])


@thorough
def test_host_that_is_cut_off(hosts, long_run, fable):
    if not hasattr(hosts, "cut"):
        pytest.skip("ranks are processes side by side")
    started, _ = long_run
    hosts.cut(2)
    try:
        assert gone(fable, seconds=12)  # mpirun alone still waits for the other host
        os.killpg(started.pid, signal.SIGKILL)
        hosts.join(2)
        _, err = started.communicate(timeout=HANG)
        assert re.search(r"^yalm: rank 1 \(\S+\) has not answered for 5 seconds", err.decode(), flags=re.M)
    finally:
        hosts.join(2)


@thorough
def test_rank_that_dies(long_run, fable):
    started, ranks = long_run
    os.kill(ranks[1], signal.SIGKILL)
    assert ends(started, fable, 128 + signal.SIGKILL) == []  # mpirun names it


def test_interrupt_ends_all(long_run, fable):
    started, ranks = long_run
    os.kill(ranks[0], signal.SIGINT)
    assert ends(started, fable, 130) == []
