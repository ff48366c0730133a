"""Option --activations: by default as coarse as the weights let it be; int8 where it multiplies, refused where it cannot; int16
and fp32 beside it."""

import re

import pytest
from harness import ROOT, THOROUGH, VARIANT, convert_directory

TOKENS = 256 if VARIANT != "release" else 1024 if THOROUGH else 512  # sanitizers take ten times as long
TEXT = ("-m", "perplexity", "-f", ROOT / "models/fable-4m/heldout.txt", "--ctx", 256, "--max-tokens", TOKENS)
BRIEF = ("--max-tokens", 128)  # where bits are compared


@pytest.fixture(scope="module", params=["q8", "q4"])
def quantised(request, program, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "model.bin"
    return type(program)(program.binary, convert_directory(ROOT / "models/fable-4m", path, "--dtype", request.param))


@pytest.fixture
def logits(quantised, tmp_path):
    def run(*options):
        path = tmp_path / "logits"
        quantised.ok(*TEXT, "--save-logits", path, *options)
        return path.read_bytes()

    return run


def test_the_same_bits_with_any_number_of_threads_and_in_every_run(logits):
    first = logits("--activations", "int8", "--threads", 1)
    for threads in (1, 2, 3):
        assert logits("--activations", "int8", "--threads", threads) == first


@pytest.mark.parametrize("form, bits", [("int16", 16), ("int8", 8)])
def test_verbose_says_who_multiplies(quantised, form, bits):
    done = quantised(
        "-i", "one two three", "-n", 1, "-v", "-d", "cpu", "--set", "machine.isa=scalar", "--activations", form
    )
    assert re.search(f"^q[0-9].*: tokens as {bits}-bit integers$", done.stderr.decode(), re.MULTILINE)


def test_the_default_is_what_the_weights_let_it_be(logits, request):
    int16, int8 = logits("--activations", "int16"), logits("--activations", "int8")
    assert int16 != int8
    assert (
        logits()
        == logits("--activations", "auto")
        == (int8 if request.node.callspec.params["quantised"] == "q4" else int16)
    )


@pytest.mark.parametrize("chunk", [1, 8, 9])
def test_few_tokens_are_rounded_as_many_are(logits, chunk):
    int8, int16 = ("--activations", "int8"), ("--activations", "int16")
    assert logits(*BRIEF, *int8, "--set", f"machine.chunk={chunk}") != logits(
        *BRIEF, *int16, "--set", f"machine.chunk={chunk}"
    )


@pytest.mark.parametrize("isa", ["auto", "avx512vnni", "avx2", "scalar"])
def test_what_it_loses(quantised, tmp_path, isa):
    quantised.ok(*TEXT, "--save-logits", tmp_path / "base", "--activations", "int16")
    done = quantised(*TEXT, "--kl-base", tmp_path / "base", "--activations", "int8", "--set", f"machine.isa={isa}")
    if b"not one that this machine has" in done.stderr or b"this machine has:" in done.stderr:
        pytest.skip(f"no {isa} here")
    assert done.returncode == 0 and b", activations int8" in done.stderr
    mean = float(re.search(rb"KL divergence: mean ([0-9.e+-]+)", done.stdout + done.stderr).group(1))
    assert 1e-6 < mean < 5e-4


def test_refused_where_no_weights_are_quantised(program):
    line = program.fails(2, "-i", "x", "-d", "cpu", "--activations", "int8")
    assert "activations: found int8, which multiplies quantised weights: this model has none" in line
    assert program.ok("-i", "x", "-n", 1, "--activations", "int16")


@pytest.fixture(scope="module", params=["fp16", "bf16", "fp8"])
def floats(request, program, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "model.bin"
    return type(program)(program.binary, convert_directory(ROOT / "models/fable-4m", path, "--dtype", request.param))


def kl(done):
    assert done.returncode == 0, done.stderr
    return float(re.search(rb"KL divergence: mean ([0-9.e+-]+)", done.stdout + done.stderr).group(1))


@pytest.fixture
def vnni(floats, isas, tmp_path):
    """The text's logits by avx512vnni."""
    if "avx512vnni" not in isas:
        pytest.skip("no avx512vnni here")

    def run(*options):
        floats.ok(*TEXT, "--set", "machine.isa=avx512vnni", "--save-logits", tmp_path / "logits", *options)
        return (tmp_path / "logits").read_bytes()

    return run


def test_integers_are_the_default_of_float_weights(vnni):
    assert vnni() == vnni("--activations", "int16") != vnni("--activations", "fp32")


def test_integers_do_not_depend_on_threads(vnni):
    first = vnni("--threads", 1)
    assert [vnni("--threads", n) == first for n in (1, 2, 3)] == [True] * 3


def test_up_to_4_tokens_keep_float32(vnni):
    kept = (*BRIEF, "--kv", "fp32")
    assert vnni("--set", "machine.chunk=4", *kept) == vnni("--set", "machine.chunk=4", "--activations", "fp32", *kept)
    assert vnni("--set", "machine.chunk=5", *kept) != vnni("--set", "machine.chunk=5", "--activations", "fp32", *kept)


@pytest.fixture(scope="module")
def exact_weights(program, tmp_path_factory):
    """The bundled model in fp32, whose products are in float32 always: so attention alone differs."""
    path = tmp_path_factory.mktemp("fp32") / "model.bin"
    return type(program)(program.binary, convert_directory(ROOT / "models/fable-4m", path, "--dtype", "fp32"))


@pytest.mark.parametrize("kv", ["fp16", "int8"])
@pytest.mark.parametrize("chunk", [7, 8])
def test_attention_is_in_integers_from_16_queries_on(exact_weights, isas, tmp_path, kv, chunk):
    """Two heads of the bundled model share a KV head. Whole chunks: of int8, a few queries are in integers too."""
    if "avx512vnni" not in isas:
        pytest.skip("no avx512vnni here")
    for form in ("int16", "fp32"):
        how = ("--set", "machine.isa=avx512vnni", "--kv", kv, "--set", f"machine.chunk={chunk}", "--activations", form)
        exact_weights.ok(*TEXT, "--max-tokens", 16 * chunk, *how, "--save-logits", tmp_path / form)
    assert ((tmp_path / "int16").read_bytes() == (tmp_path / "fp32").read_bytes()) == (chunk == 7)


def test_attention_in_integers_loses_no_more_than_the_fp16_cache(exact_weights, isas, tmp_path):
    if "avx512vnni" not in isas:
        pytest.skip("no avx512vnni here")
    text = (*TEXT, "--max-tokens", 256, "--set", "machine.isa=avx512vnni", "--set", "machine.chunk=8")
    exact_weights.ok(*text, "--activations", "fp32", "--kv", "fp32", "--save-logits", tmp_path / "exact")
    cache = kl(exact_weights(*text, "--activations", "fp32", "--kl-base", tmp_path / "exact"))
    exact_weights.ok(*text, "--activations", "fp32", "--save-logits", tmp_path / "floats")
    integers = kl(exact_weights(*text, "--kl-base", tmp_path / "floats"))
    assert 1e-9 < integers < cache < 2e-7


def test_few_queries_of_an_int8_cache_are_in_integers_and_lose_a_hundredth_of_it(program, isas, tmp_path):
    """Two heads share a KV head, and from 3 queries on they are multiplied as bytes: chunks of one token keep float32."""
    if "avx512vnni" not in isas:
        pytest.skip("no avx512vnni here")
    for chunk in (1, 4):
        text = (*TEXT, *BRIEF, "--set", "machine.isa=avx512vnni", "--set", f"machine.chunk={chunk}")
        program.ok(*text, "--activations", "fp32", "--kv", "fp32", "--save-logits", tmp_path / "exact")
        cache = kl(program(*text, "--activations", "fp32", "--kv", "int8", "--kl-base", tmp_path / "exact"))
        program.ok(*text, "--activations", "fp32", "--kv", "int8", "--save-logits", tmp_path / "floats")
        integers = kl(program(*text, "--kv", "int8", "--kl-base", tmp_path / "floats"))
        assert integers == 0 if chunk == 1 else 1e-11 < integers < cache / 100, (integers, cache)


@pytest.mark.parametrize("chunk", [8, 512])
def test_integers_lose_no_more_than_the_fp16_cache(floats, vnni, tmp_path, chunk):
    vnni("--activations", "fp32", "--kv", "fp32", "--set", f"machine.chunk={chunk}")
    lost = []
    for more in (("--kv", "fp32"), ("--activations", "fp32")):  # the integers alone, the cache alone
        done = floats(
            *TEXT,
            "--set",
            "machine.isa=avx512vnni",
            "--set",
            f"machine.chunk={chunk}",
            "--kl-base",
            tmp_path / "logits",
            *more,
        )
        lost.append(float(re.search(rb"KL divergence: mean ([0-9.e+-]+)", done.stdout + done.stderr).group(1)))
    assert 1e-9 < lost[0] < 1.5 * lost[1] < 2e-7


def test_float32_is_refused_where_all_weights_are_quantised(quantised):
    line = quantised.fails(2, "-i", "x", "-d", "cpu", "--activations", "fp32")
    assert (
        "activations: found fp32, which multiplies fp32, fp16, bf16 and fp8 weights: this model has none of these"
        in line
    )


def test_tiles_take_every_type_of_weights(program, isas, tmp_path):
    if "amx" not in isas:
        pytest.skip("no amx here")
    for dtype in ("fp32", "q8", "q4"):
        few = (
            ("--bits", "4.3") if dtype == "q4" else ()
        )  # with more some are q8, which tiles take as bfloat16 beside bytes
        path = convert_directory(ROOT / "models/fable-4m", tmp_path / f"{dtype}.bin", "--dtype", dtype, *few)
        model = type(program)(program.binary, path)
        model.ok(*TEXT, "--save-logits", tmp_path / "base", "--set", "machine.isa=avx512vnni", "--kv", "fp32")
        done = model(*TEXT, "--kl-base", tmp_path / "base", "--kv", "fp32", "--set", "machine.isa=amx")
        assert kl(done) < (1e-8 if dtype == "fp32" else 2e-7), dtype
