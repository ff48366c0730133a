"""Logits against Hugging Face transformers' float32 (tests/golden/logits), for each architecture option, on each instruction
set, however the prompt is cut; and the bundled model against its reference files. All through the public C API (driver.c)."""

from __future__ import annotations

import json
import math
import platform
import subprocess

import cases
import numpy as np
import pytest
from harness import BUILD, THOROUGH, VARIANT, built, convert_directory, usable_isas

ARM = VARIANT == "arm64" or platform.machine() == "aarch64"
ISAS = (
    ["scalar", "neon", "neondot", "neoni8mm"] if ARM else ["scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"]
)
EXACT = 1e-4  # of the logits' range: float32 activations and cache
INTEGERS = 1e-3  # of the logits' range: 16-bit integers instead, as 16-bit weights by VNNI have; the largest seen is half of it
HALF = 4e-3  # of the logits' range: keys and values rounded to 11 bits; the largest seen is half of it

# Of a model with experts, the tokens that keep within that: most, unless float64 with such keys and values loses more, too.
KEEP = {"tiny-solar-open": 0.7}  # float64: 0.75

LATENT = ("tiny-deepseek-v3",)  # whose cache has one row a token
WINDOWED = ("tiny-gemma2", "tiny-gemma3", "tiny-olmo3")  # some of whose layers have a window

# Sanitizers run each path once; the release build runs them all.
CHUNKS = [0, 1, 7, 64] if VARIANT == "release" else [0, 7] if THOROUGH else [7]


@pytest.fixture(scope="module")
def driver():
    return built(BUILD / "tests/parity/driver")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Case name -> (converted model, file of its token ids); made when first asked for."""
    folder, made = tmp_path_factory.mktemp("parity"), {}

    def get(name):
        if name not in made:
            case = cases.CASES[name]
            source = cases.write_model(case, folder / name)
            digest = str(np.load(cases.GOLDEN / f"{name}.npz")["weights"])
            assert cases.weights_digest(source) == digest, "the generator's weights are not those of the golden logits"
            cases.token_ids(case).tofile(folder / f"{name}.ids")
            made[name] = convert_directory(source, folder / f"{name}.bin"), folder / f"{name}.ids"
        return made[name]

    return get


def drive(driver, model, tokens, out, **options):
    """Runs the driver; returns the completed process."""
    words = [f"{key}={value}" for key, value in options.items()]
    return subprocess.run([driver, model, tokens, out, *words], capture_output=True, text=True, timeout=600)


def logits(driver, model, tokens, out, vocab, **options):
    done = drive(driver, model, tokens, out, **options)
    assert done.returncode == 0, f"{options}: {done.stderr}"
    return np.fromfile(out, np.float32).reshape(-1, vocab)


def distances(case, found):
    """(n_tokens): each position's largest difference at any stored value, in units of the position's range."""
    golden = np.load(cases.GOLDEN / f"{case.name}.npz")
    assert found.shape == (case.n_tokens, case.vocab) and np.isfinite(found).all()
    spread = golden["high"] - golden["low"]
    rows = cases.stored_positions(case)
    top = found.max(-1).astype(np.float64)
    sums = top + np.log(np.exp(found - top[:, None]).sum(-1))
    worst = np.abs(np.take_along_axis(found, cases.stored_ids(case), 1) - golden["some"]).max(-1)
    worst[rows] = np.maximum(worst[rows], np.abs(found[rows] - golden["rows"]).max(-1))
    # The golden row's largest logit is, within the bound, the largest here too.
    chosen = np.take_along_axis(found, golden["argmax"][:, None], 1)[:, 0]
    pairs = [(found.min(-1), "low"), (top, "high"), (chosen, "high"), (sums, "logsumexp")]
    return np.max([worst, *(np.abs(ours - golden[theirs]) for ours, theirs in pairs)], 0) / spread


def distance(case, found):
    return distances(case, found).max()


def isas_of(i):
    """Of a model: each instruction set, or, in `make test`, one of this machine's by turns, and beside a sanitizer another one,
    as far from it as they come."""
    if THOROUGH:
        return ISAS
    usable = usable_isas()
    n = len(usable)
    return [usable[(i if VARIANT == "release" else i + n // 2) % n]]


PAIRS = [(name, isa) for i, name in enumerate(cases.CASES) for isa in isas_of(i)]


@pytest.mark.parametrize("name, isa", PAIRS)
def test_logits_equal_transformers(driver, models, isas, tmp_path, name, isa):
    if isa not in isas:
        pytest.skip(f"this machine has no {isa}")
    case, out = cases.CASES[name], tmp_path / "logits"
    model, tokens = models(name)
    integers = case.dtype != "fp32" and isa in ("avx512vnni", "amx")
    if integers:
        found = logits(driver, model, tokens, out, case.vocab, threads=2, kv="fp32", isa=isa)
        floats = logits(driver, model, tokens, out, case.vocab, threads=2, kv="fp32", isa=isa, activations="fp32")
        assert (isa == "amx" or (found != floats).any()) and distance(case, found) <= INTEGERS  # tiles are exact
    # In `make test` each model goes two of these ways, by turns; one thread goes the first of the two.
    turn = list(cases.CASES).index(name) + ISAS.index(isa)
    chunks = CHUNKS if THOROUGH or len(CHUNKS) == 1 else [CHUNKS[(turn + i) % len(CHUNKS)] for i in (0, 1)]
    alone = CHUNKS[turn % len(CHUNKS)]
    for chunk in chunks:
        run = dict(isa=isa, chunk=chunk, **({"activations": "fp32"} if integers else {}))
        found = logits(driver, model, tokens, out, case.vocab, threads=2, kv="fp32", **run)
        assert distance(case, found) <= EXACT, run
        if VARIANT == "release" and (THOROUGH or chunk == alone):
            single = logits(driver, model, tokens, out, case.vocab, threads=1, kv="fp32", **run)
            assert np.array_equal(single, found), f"{run}: two threads, other logits"
    half = logits(driver, model, tokens, out, case.vocab, isa=isa, threads=2, kv="fp16")
    if cases.has_experts(case):
        # Rounded keys and values can tip a router between two experts that are nearly as good.
        assert 0 < np.median(distances(case, half)) <= HALF
        assert np.mean(distances(case, half) <= HALF) > KEEP.get(name, 0.9)
    else:
        assert 0 < distance(case, half) <= HALF


@pytest.mark.parametrize(("name", "most"), [("fp16-gqa", 128), ("bf16-bias", 64)])
def test_tiles_begin_where_integers_are_slower(driver, models, isas, tmp_path, name, most):
    """Of so many tokens, with such weights, the same bits as without tiles; of one more others."""
    if "amx" not in isas:
        pytest.skip("this machine has no amx")
    case = cases.CASES[name]
    model, tokens = models(name)
    for chunk, same in ((most, True), (most + 1, False)):
        runs = [
            logits(driver, model, tokens, tmp_path / isa, case.vocab, threads=2, kv="fp32", isa=isa, chunk=chunk)
            for isa in ("avx512vnni", "amx")
        ]
        assert np.array_equal(*runs) == same, chunk


@pytest.mark.parametrize(
    "name", ["tiny-llama", "tiny-window", "tiny-mixtral", "tiny-yarn", "tiny-oddvocab", *WINDOWED, *LATENT]
)
def test_rollback_and_inner_chunks(driver, models, tmp_path, name):
    case = cases.CASES[name]
    model, tokens = models(name)
    # A window's ring forgets what lies more than a chunk behind it; other caches go back as far as one likes.
    windowed = name in ("tiny-window", *WINDOWED)
    back = case.n_tokens - 20 if windowed else case.n_tokens // 3
    runs = [dict(inner=13), dict(back=back, inner=32), dict(back=back, inner=32, chunk=5)]
    for run in runs if windowed else [*runs, dict(back=0), dict(back=1, chunk=1)]:
        found = logits(driver, model, tokens, tmp_path / "logits", case.vocab, threads=2, kv="fp32", **run)
        assert distance(case, found) <= EXACT, run


def test_rollback_past_the_ring_is_refused(driver, models, tmp_path):
    done = drive(driver, *models("tiny-window"), tmp_path / "logits", back=60, inner=16)
    assert done.returncode == 2, done.stderr
    assert "60" in done.stderr


def reference(name):
    return json.loads((cases.FABLE / "reference" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("isa", ISAS)
def test_bundled_reference_logits(driver, fable, isas, tmp_path, isa):
    """float64 references, to the same bound of the range (about 20)."""
    if isa not in isas:
        pytest.skip(f"this machine has no {isa}")
    for prompt in reference("logits.json")["prompts"]:
        np.array(prompt["ids"], np.int32).tofile(tmp_path / "ids")
        run = dict(isa=isa, kv="fp32", activations="fp32")
        found = logits(driver, fable, tmp_path / "ids", tmp_path / "logits", 4096, **run)
        for row in prompt["positions"]:
            values = found[row["position"]].astype(np.float64)
            ids = [token for token, _ in row["top"]]
            spread = values.max() - values.min()
            assert np.argsort(-values, kind="stable")[:10].tolist() == ids
            assert np.abs(values[ids] - [logit for _, logit in row["top"]]).max() <= EXACT * spread
            assert abs(np.log(np.exp(values).sum()) - row["logsumexp"]) <= EXACT * spread


@pytest.mark.parametrize("kv", ["fp32", "fp16"])
@pytest.mark.parametrize("isa", ISAS)
def test_bundled_greedy_continuations(driver, fable, isas, tmp_path, isa, kv):
    """Each step's two best logits are at least 0.018 apart, which is more than the fp16 cache moves them."""
    if isa not in isas:
        pytest.skip(f"this machine has no {isa}")
    for prompt in reference("greedy.json")["prompts"]:
        np.array(prompt["prompt_ids"], np.int32).tofile(tmp_path / "ids")
        done = drive(driver, fable, tmp_path / "ids", tmp_path / "out", isa=isa, kv=kv, greedy=len(prompt["ids"]))
        assert done.returncode == 0, done.stderr
        assert np.fromfile(tmp_path / "out", np.int32).tolist() == prompt["ids"], prompt["prompt"]


def test_bundled_greedy_text(yalm, fable):
    for prompt in reference("greedy.json")["prompts"]:
        options = ["--temp", "0", "-n", str(len(prompt["ids"]))]
        done = subprocess.run(
            [yalm, fable, "-i", prompt["prompt"], *options], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip("\n") == prompt["text"].rstrip("\n")


def test_bundled_token_ids(yalm, fable):
    for case in reference("tokenizer.json")["cases"]:
        command = [yalm, fable, "-m", "tokenize", "--set", "text.bos=off", "-f", "-"]
        done = subprocess.run(command, input=case["text"].encode(), capture_output=True, timeout=600)
        assert done.returncode == 0, done.stderr
        assert [int(word) for word in done.stdout.split()] == case["ids"], repr(case["text"])


def test_bundled_perplexity(yalm, driver, fable, tmp_path):
    wanted = reference("perplexity.json")
    text = cases.FABLE / wanted["file"]
    done = subprocess.run(
        [yalm, fable, "-m", "tokenize", "--set", "text.bos=off", "-f", text], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ids = np.array(done.stdout.split(), np.int32)[: wanted["tokens"]]
    runs = {
        "exact": dict(kv="fp32", activations="fp32"),
        "cache": dict(kv="fp16", activations="fp32"),
        "default": dict(),
    }
    total = dict.fromkeys(runs, 0.0)
    for at in range(0, len(ids), wanted["chunk"]):
        part = ids[at : at + wanted["chunk"]]
        np.concatenate(([1], part[:-1])).astype(np.int32).tofile(tmp_path / "ids")
        for name, run in runs.items():
            found = logits(driver, fable, tmp_path / "ids", tmp_path / "out", 4096, threads=2, **run).astype(np.float64)
            total[name] += float((np.log(np.exp(found).sum(-1)) - found[np.arange(len(part)), part]).sum())
    assert total["exact"] == pytest.approx(wanted["nll"], rel=1e-6)
    assert total["cache"] == pytest.approx(wanted["nll"], rel=1e-4)
    assert total["default"] == pytest.approx(wanted["nll"], rel=1e-4)
    assert math.exp(total["exact"] / len(ids)) == pytest.approx(wanted["perplexity"], rel=1e-5)


def test_golden_files_cover_the_cases():
    assert {path.stem for path in cases.GOLDEN.glob("*.npz")} == set(cases.CASES)
    presets = {name for name in cases.generator.PRESETS if name.startswith("tiny-")}
    assert presets <= set(cases.CASES)
