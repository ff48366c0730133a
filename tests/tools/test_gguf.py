"""tools/convert.py on GGUF files: each architecture beside its Hugging Face directory, each type beside the package
`gguf`'s own dequantiser, and files that are split, damaged or of something else."""

import json
import math

import gguf
import gguf_files
import hf
import numpy as np
import pytest
from gguf_files import bpe, spm
from read_types import dequantise

Kind = gguf.GGMLQuantizationType
random = hf.random_hf_model
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
WINDOWS = ["sliding_attention"] * 3 + ["full_attention", "sliding_attention"]
# Presets, and what of them a GGUF file can say.
MORE = {
    "all-experts": random.qwen3_moe(
        128, 224, 2, 4, 2, 512, 256, 1e6, head_dim=64, experts=6, active=3, width=96, norm_topk_prob=True
    ),
    "every-fourth": random.smollm3(128, 352, 4, 4, 2, 512, 256, 2000000.0, tied=True),
    "llama-3": random.llama(
        128, 352, 2, 4, 2, 512, 131072, 5e5, rope_scaling=LLAMA3 | {"original_max_position_embeddings": 8192}
    ),
    "gemma-2": random.gemma2(128, 352, 4, 4, 2, 512, 256, head_dim=40, tied=True) | {"query_pre_attn_scalar": 40},
    "gemma-3": random.gemma3(128, 352, 7, 4, 2, 512, 256, 1e6, pattern=6, head_dim=64, tied=True)
    | {"query_pre_attn_scalar": 64},
    "gemma-3, its context stretched": random.gemma3(
        128,
        352,
        6,
        4,
        2,
        512,
        256,
        1e6,
        pattern=6,
        head_dim=64,
        tied=True,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )
    | {"query_pre_attn_scalar": 64},
    "gemma-3 of 62 layers": random.gemma3(32, 64, 62, 2, 1, 64, 256, 1e6, pattern=6, head_dim=64, tied=True)
    | {"query_pre_attn_scalar": 16},
    "ernie-4.5": {**random.rows()["tiny-ernie4_5"], "use_bias": False},
    "ernie-4.5 with experts": {
        **random.rows()["tiny-ernie4_5-moe"],
        "moe_layer_end_index": 4,
        "moe_layer_interval": 2,
        "moe_norm_min": 1e-12,
    },
    "dots-1": {**random.rows()["tiny-dots1"], "sliding_window": None},
    "afmoe": {**random.rows()["tiny-afmoe"], "num_hidden_layers": 5, "layer_types": WINDOWS},
    "cohere-2": {**random.presets()["tiny-cohere2"], "num_hidden_layers": 5, "sliding_window_pattern": 4},
    "apertus": {**random.presets()["tiny-apertus"], "rope_theta": 12e6},
    "phi3-window": random.phi3(128, 352, 2, 4, 2, 512, 256) | {"sliding_window": 48},
}
for name in ("deepseek-v2-lite", "deepseek-v3"):  # in whose files there is one mscale for both
    config = random.rows()[f"tiny-{name}"]
    MORE[f"{name}, one mscale"] = {**config, "rope_scaling": config["rope_scaling"] | {"mscale": 0.9}}
PRESETS = (
    "tiny-llama", "tiny-gqa", "tiny-mqa", "tiny-headdim", "tiny-linear-rope", "tiny-yarn", "tiny-window", "tiny-mixtral",
    "tiny-bias",
    "tiny-qwen2", "tiny-qwen3", "tiny-phi3", "tiny-granite", "tiny-olmo2", "tiny-olmo3", "tiny-ministral3", "tiny-oddvocab",
    "tiny-glm4", "tiny-phi4-mini", "tiny-gpt-oss", "tiny-granite-moe",
    "tiny-glm4-moe", "tiny-gemma", "tiny-glm", "tiny-seed-oss", "tiny-exaone4", "tiny-granite-moe-shared", "tiny-qwen2-moe",
    "tiny-olmoe", "tiny-minimax-m2", "tiny-deepseek-v2", "tiny-youtu", "tiny-hunyuan", "tiny-hunyuan-moe",
    "tiny-starcoder2", "tiny-phi", "tiny-stablelm", "tiny-gpt2", "tiny-gpt-neox",
    "tiny-cohere", "tiny-arcee", "tiny-bloom", "tiny-gpt-bigcode", *MORE,
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """model(preset) -> its directory."""
    home, made = tmp_path_factory.mktemp("gguf"), {}

    def get(preset, *options):
        key = "_".join((preset, *options))
        if key not in made:
            with pytest.MonkeyPatch.context() as patch:
                for name, config in MORE.items():
                    patch.setitem(random.PRESETS, name, config)
                made[key] = hf.make(preset, home / key, *options)
        return made[key]

    return get


@pytest.fixture
def refused(monkeypatch, capsys, tmp_path):
    def do(source, *texts, code=3, named=None):
        found, out, err = hf.call(monkeypatch, capsys, source, tmp_path / "model.bin")
        lines = [line for line in err.splitlines() if "warning: " not in line and "matrices: " not in line]
        assert (found, out, len(lines)) == (code, "", 1), err
        assert all(text in lines[0] for text in texts), err
        assert str(named or source) in lines[0] and not (tmp_path / "model.bin").exists()

    return do


# ------------------------------------------------------------------------------------ architectures


@pytest.mark.parametrize("preset", PRESETS)
def test_every_architecture(preset, model, convert, tmp_path):
    """The file gives the same model as the directory that it was made from, bit for bit."""
    directory = hf.copy(model(preset), tmp_path / preset)
    if preset in ("llama-3", "apertus"):
        freqs = llama3_factors(32, 5e5, 8.0) if preset == "llama-3" else llama3_factors(24, 12e6, 8.0)
        hf.edit_json(directory / "config.json", rope_freqs=freqs)
    path = gguf_files.write(directory, tmp_path / "model.gguf")
    hf.edit_json(directory / "config.json", rope_freqs=...)
    wanted, found = convert(directory), convert(path)
    differences = {
        key
        for key in wanted[0]["config"] | found[0]["config"]
        if wanted[0]["config"].get(key) != found[0]["config"].get(key)
    }
    assert differences <= {"rope", "kinds"} and found[0]["tokenizer"] == {"type": "none"}
    kinds = [[model[0]["config"], *model[0]["config"].get("kinds", [])] for model in (wanted, found)]
    assert len(kinds[0]) == len(kinds[1])
    for one, other in zip(*kinds):
        assert one["sliding_window"] == other["sliding_window"] and one.get("layers") == other.get("layers")
        assert one["rope"].keys() == other["rope"].keys()
        assert all(one["rope"][key] == pytest.approx(other["rope"][key], rel=1e-6) for key in one["rope"])
    assert hf.contents(found[1]) == hf.contents(wanted[1])


def test_an_apertus_without_scaled_rope(model, convert, refused, tmp_path):
    """RoPE is scaled where the file has its factors."""

    def change(writer, n=1):
        for part in ("alpha_p", "alpha_n", "beta", "eps"):
            setattr(writer, f"add_xielu_{part}", lambda found, part=part: writer.add_array(f"xielu.{part}", found[:n]))

    path = gguf_files.write(model("apertus"), tmp_path / "model.gguf")
    assert convert(path)[0]["config"]["rope"]["type"] == "default"
    (tmp_path / "model.bin").unlink()
    path = gguf_files.write(model("apertus"), tmp_path / "few.gguf", change=change)
    refused(path, "xielu.alpha_p: found 1 numbers, expected 3")


def test_layers_that_guess_further_are_left_out(model, convert, tmp_path):
    """GLM-4.5's file counts one more layer, which is for speculation."""
    wanted = convert(gguf_files.write(model("tiny-glm4-moe"), tmp_path / "plain.gguf"))

    def change(writer):
        writer.kv_data[0].pop("glm4moe.block_count")
        writer.add_block_count(4)
        writer.add_nextn_predict_layers(1)
        writer.add_tensor("blk.3.nextn.eh_proj.weight", np.zeros((4, 8), np.float32))

    found = convert(gguf_files.write(model("tiny-glm4-moe"), tmp_path / "more.gguf", change=change))
    assert hf.contents(found[1]) == hf.contents(wanted[1]) and found[0]["config"] == wanted[0]["config"]


def llama3_factors(width, theta, factor):
    """Written from the formula in docs/format.md: what each frequency is divided by."""
    found = []
    for i in range(width // 2):
        f = theta ** (-2 * i / width)
        w = 2 * math.pi / f
        s = (8192 / w - 1) / (4 - 1)
        new = f if w < 8192 / 4 else f / factor if w > 8192 else (1 - s) * f / factor + s * f
        found.append(f / new)
    return found


def test_experts_one_by_one(model, convert, tmp_path):
    """Files of before December 2023 have a tensor for each expert."""
    directory = model("tiny-mixtral")
    path, old = gguf_files.write(directory, tmp_path / "new.gguf"), tmp_path / "old.gguf"
    writer = gguf.GGUFWriter(str(old), "llama")
    gguf_files.add_settings(writer, "llama", json.loads((directory / "config.json").read_text()))
    for tensor in gguf.GGUFReader(path).tensors:
        kind = None if tensor.tensor_type == Kind.F32 else tensor.tensor_type
        parts = enumerate(tensor.data) if "_exps" in tensor.name else [(None, tensor.data)]
        for number, data in parts:
            name = tensor.name if number is None else tensor.name.replace("_exps", f".{number}")
            writer.add_tensor(name, np.array(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    wanted, found = convert(path), convert(old)
    assert hf.contents(found[1]) == hf.contents(wanted[1]) and found[0]["config"] == wanted[0]["config"]


def test_split_files(model, convert, refused, tmp_path):
    directory = model("tiny-qwen2")
    whole = convert(gguf_files.write(directory, tmp_path / "whole.gguf"))
    gguf_files.write(directory, tmp_path / "parts.gguf", split_max_tensors=15)
    parts = sorted(tmp_path.glob("parts-*.gguf"))
    assert len(parts) == 3 and parts[0].name == "parts-00001-of-00003.gguf"
    found = convert(parts[0])
    assert hf.contents(found[1]) == hf.contents(whole[1]) and found[0]["config"] == whole[0]["config"]
    (tmp_path / "model.bin").unlink()
    refused(parts[1], "part 00002 of 00003, give the first", parts[0].name)
    renamed = tmp_path / "other.gguf"
    renamed.write_bytes(parts[0].read_bytes())
    refused(renamed, "one of 3 parts, expected a name that ends in -00001-of-00003.gguf")
    last = parts[2].read_bytes()
    parts[2].unlink()
    refused(parts[0], "parts-00003-of-00003.gguf is missing")
    parts[2].write_bytes(parts[1].read_bytes())
    refused(parts[0], "not part 3 of 3, as its name says", named=parts[2])
    parts[2].write_bytes(last)
    assert hf.contents(convert(parts[0])[1]) == hf.contents(whole[1])


# ------------------------------------------------------------------------------------ types

EXACT = {"Q8_0": "q8", "Q4_0": "q4", "Q5_0": "q5u", "IQ4_NL": "iq4nl", "IQ4_XS": "iq4xs", "MXFP4": "mxfp4",
         "TQ1_0": "q4", "TQ2_0": "q4", "Q4_1": "q4a", "Q5_1": "q5a", "Q4_K": "q4k", "Q5_K": "q5k", "Q6_K": "q6k",
         "Q3_K": "q3k", "Q2_K": "q2k", "IQ3_S": "iq3s", "IQ3_XXS": "iq3xxs", "IQ2_S": "iq2s", "IQ2_XS": "iq2xs",
         "IQ2_XXS": "iq2xxs"}  # fmt: skip
OTHERS = {"IQ1_S": "q4n", "IQ1_M": "q4n"}


def blocks_of(kind, rows, columns, seed=3):
    """Random blocks of a type whose values are numbers of a weight's size; negative scales and zeros among them."""
    rng = np.random.default_rng(seed)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    found, needed = [], rows * columns // block
    while sum(map(len, found)) < needed:
        tried = rng.integers(0, 256, (4096, size), np.uint8)
        with np.errstate(all="ignore"):
            values = np.abs(gguf.dequantize(tried, kind)).max(axis=1)
        found.append(tried[(values < 64) & ((values > 1e-3) | ((values == 0) & (rng.random(len(values)) < 0.02)))])
    return np.concatenate(found)[:needed].reshape(rows, -1)


@pytest.fixture
def one_matrix(model, tmp_path):
    """one_matrix(kind) -> (file, the values of layer 1's down, which is of that type). Nothing in it is permuted."""

    def make(name):
        kind = Kind[name]
        data = blocks_of(kind, 128, 256)
        directory = hf.copy(model("wide"), tmp_path / "wide")
        path = tmp_path / f"{name}.gguf"
        original = gguf_files.named

        def with_blocks(*arguments):
            return {key: value for key, value in original(*arguments).items() if key != "blk.1.ffn_down.weight"}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gguf_files, "named", with_blocks)
            patch.setattr(gguf.GGUFWriter, "write_header_to_file", add_first(data, kind))
            gguf_files.write(directory, path)
        with np.errstate(all="ignore"):
            return path, gguf.dequantize(data, kind)

    return make


def add_first(data, kind):
    original = gguf.GGUFWriter.write_header_to_file

    def write(self, *arguments):
        self.add_tensor("blk.1.ffn_down.weight", data, raw_dtype=kind)
        original(self, *arguments)

    return write


MORE["wide"] = random.qwen2(128, 256, 2, 4, 2, 512, 256, tied=True)
DOWN = "layers.1.down"


@pytest.mark.parametrize("name", [*EXACT, *OTHERS])
def test_every_type(name, one_matrix, convert):
    path, values = one_matrix(name)
    entry, data = convert(path, "--dtype", "fp32")[1][DOWN]
    assert entry["dtype"] == "fp32" and (np.frombuffer(data, "<f4").reshape(values.shape) == values).all()
    _, tensors, err = convert(path)
    entry, data = tensors[DOWN]
    found, _ = dequantise(entry, data)
    assert entry["dtype"] == {**EXACT, **OTHERS}[name]
    off = np.sqrt(np.square(found - values).sum() / np.square(values).sum())
    if name in EXACT:
        assert (found == values).all() and f"1 of {name} become {entry['dtype']}, without loss" in err
    else:
        assert 0 < off < {"q8": 0.012, "q4n": 0.1}[entry["dtype"]]
        assert f"1 of {name} become {entry['dtype']}, which moves weights by" in err


@pytest.mark.parametrize("name", ["Q4_0", "TQ2_0", "IQ4_NL", "MXFP4"])
def test_four_bits_in_eight(name, one_matrix, convert):
    """q8 holds what types of four bits do."""
    path, values = one_matrix(name)
    _, tensors, err = convert(path, "--dtype", "q8")
    entry, data = tensors[DOWN]
    assert entry["dtype"] == "q8" and (dequantise(entry, data)[0] == values).all()
    assert f"1 of {name} become q8, without loss" in err


@pytest.mark.parametrize("dtype", ["mxfp4", "q8"])
def test_the_smallest_powers_of_two(dtype, one_matrix, convert, monkeypatch):
    """MXFP4 reaches further down than q8's scales: there what is below them becomes the nearest that they have."""
    data = np.full((128, 8 * 17), 0x75, np.uint8)  # 3 and 6, or as much less
    data.reshape(128, 8, 17)[:, :, 0] = [0, 1, 2, 97, 100, 102, 103, 104]
    monkeypatch.setitem(globals(), "blocks_of", lambda *_: data)
    path, values = one_matrix("MXFP4")
    entry, found = convert(path, *(("--dtype", "q8") if dtype == "q8" else ()))[1][DOWN]
    off = np.abs(dequantise(entry, found)[0] - values).max()
    assert entry["dtype"] == dtype and off <= (2.0**-25 if dtype == "q8" else 0)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_0", "Q4_1", "MXFP4"])
def test_permuted_rows_and_experts_without_loss(kind, model, convert, tmp_path):
    """q and k are put in order and experts taken apart as quants: nothing is rounded again."""
    directory = model("tiny-mixtral")
    path = gguf_files.write(directory, tmp_path / "model.gguf", {"*": Kind[kind]})
    exact, found = convert(path, "--dtype", "fp32")[1], convert(path)[1]
    kinds = {entry["dtype"] for entry, _ in found.values()}
    assert kinds == {"fp32", EXACT[kind]}
    for name, (entry, data) in found.items():
        if entry["dtype"] != "fp32":
            wanted = np.frombuffer(exact[name][1], "<f4").reshape(entry["shape"])
            assert (dequantise(entry, data)[0] == wanted).all(), name


def test_blocks_do_not_show(one_matrix, convert, monkeypatch):
    path, _ = one_matrix("Q5_0")
    usual = convert(path)[1][DOWN][1], convert(path, "--dtype", "fp16")[1][DOWN][1]
    monkeypatch.setattr("yalm_convert.computed.PIECE", 7000)
    assert (convert(path)[1][DOWN][1], convert(path, "--dtype", "fp16")[1][DOWN][1]) == usual


def test_values_that_are_no_numbers(model, refused, tmp_path):
    directory, original = model("wide"), gguf_files.named

    def spoil(*arguments):
        found = original(*arguments)
        kind, data = found["blk.0.ffn_down.weight"]
        data = data.copy()
        data[3, 5] = 0x7F80
        return found | {"blk.0.ffn_down.weight": (kind, data)}

    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(gguf_files, "named", spoil)
        path = gguf_files.write(directory, tmp_path / "model.gguf", {"blk.0.ffn_down.weight": Kind.Q8_0})
    refused(path, 'tensor "blk.0.ffn_down.weight" has a scale that is NaN or infinite')


def test_a_power_of_two_that_is_no_number(one_matrix, refused, monkeypatch):
    data = np.full((128, 8 * 17), 0x75, np.uint8)
    data[5, 3 * 17] = 0xFF
    monkeypatch.setitem(globals(), "blocks_of", lambda *_: data)
    refused(one_matrix("MXFP4")[0], 'tensor "blk.1.ffn_down.weight" has a scale that is NaN or infinite')


# ------------------------------------------------------------------------------------ what is refused


def test_a_tensor_between_places(model, refused, tmp_path):
    path = gguf_files.write(model("tiny-llama"), tmp_path / "model.gguf")
    whole, name = bytearray(path.read_bytes()), b"output_norm.weight"
    at = whole.index(name) + len(name) + 4 + 8 + 4  # behind the number of dimensions, the one there is, and the type
    whole[at] += 1
    path.write_bytes(whole)
    refused(path, "output_norm.weight", "expected a multiple of 32")


def test_truncated_anywhere(model, refused, tmp_path):
    path = gguf_files.write(model("tiny-llama"), tmp_path / "whole.gguf", tokenizer=bpe)
    whole, cut = path.read_bytes(), tmp_path / "cut.gguf"
    for length in (*range(4, 64, 7), 500, 5000, 12345, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:length])
        refused(cut, "truncated: ")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a GGUF file: begins with b''"),
        (b"GGML" + bytes(100), "not a GGUF file: begins with b'GGML'"),
        (b"<!DOCTYPE html>", "not a GGUF file: begins with b'<!DO'"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a git-lfs pointer, not the file itself"),
        (b"GGUF\1\0\0\0" + bytes(100), "a GGUF file of version 1, expected version 2 or 3"),
        (b"GGUF\0\0\0\3" + bytes(100), "a GGUF file of a big-endian machine"),
        (b"GGUF\3\0\0\0" + bytes(8) + b"\xff" * 16, "truncated: "),
        (b"GGUF\3\0\0\0" + bytes(16), "general.architecture: null is not supported: README.md lists those that are"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_model(data, text, refused, tmp_path):
    (tmp_path / "model.gguf").write_bytes(data)
    refused(tmp_path / "model.gguf", text)


def test_any_flipped_byte_of_the_header(model, tmp_path, monkeypatch, capsys):
    """A damaged header is refused, or changes nothing that is read; it never ends in a traceback."""
    path = gguf_files.write(model("tiny-llama"), tmp_path / "whole.gguf", tokenizer=bpe)
    good, bad = path.read_bytes(), tmp_path / "bad.gguf"
    rng = np.random.default_rng(7)
    for at in rng.integers(4, 9000, 150):
        bad.write_bytes(good[:at] + bytes([good[at] ^ (1 << rng.integers(8))]) + good[at + 1 :])
        code, _, err = hf.call(monkeypatch, capsys, bad, tmp_path / "model.bin", "--dry-run")
        assert code in (0, 3) and "Traceback" not in err
        assert code == 0 or len([line for line in err.splitlines() if "warning" not in line]) == 1


CHANGES = [
    (lambda w: w.add_string("general.architecture", "gemma9"), 'general.architecture: "gemma9" is not supported'),
    (lambda w: w.add_string("llama.embedding_length", "wide"), "not of the form that is expected: TypeError"),
    (lambda w: w.add_string("split.count", "2"), 'split.count is "2", expected an integer'),
    (lambda w: w.add_type("adapter"), 'general.type is "adapter", expected a model'),
    (lambda w: w.add_block_count(4), 'tensor "model.layers.3.input_layernorm.weight" is missing'),
    (lambda w: w.add_head_count([4, 2, 4]), "num_attention_heads: found [4, 2, 4], expected an integer"),
    (lambda w: w.add_attn_logit_softcapping(30.0), '"attn_logit_softcapping" is 30.0, which is not supported'),
    (lambda w: w.add_clamp_kqv(8.0), '"clip_qkv" is 8.0, which is not supported'),
    (lambda w: w.add_value_length(64), "heads of 32 have values of 64"),
    (lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE) or w.add_string("llama.rope.scaling.type", "su"),
     '"su" is not supported'),
    (lambda w: w.add_tensor("blk.0.attn_sinks.weight", np.zeros(4, np.float32)),
     'tensor "blk.0.attn_sinks.weight" is not known'),
    (lambda w: w.add_tensor("rope_freqs.weight", np.full(16, 3, np.float32)), "does not hold Llama 3's factors"),
    (lambda w: w.add_tensor("blk.0.attn_qkv.weight", np.zeros((4, 4), np.float32)), "q, k and v in one are not supported"),
    (lambda w: w.add_tokenizer_model("rwkv") or w.add_token_list(["a"]), 'tokenizer.ggml.model "rwkv" is not supported'),
    (lambda w: bpe(w, None), "names no pre-tokenizer (tokenizer.ggml.pre), as those of before May 2024"),
    (lambda w: bpe(w, "falcon"), 'tokenizer.ggml.pre: "falcon" is not supported, expected one of llama3'),
    (lambda w: bpe(w, token_types=[1]), "tokenizer.ggml.token_type: expected one of 1 to 6 for each of 266 tokens"),
    (lambda w: bpe(w, bos_token_id=266), "bos is token 266, expected 0 to 265"),
    (lambda w: spm(w, token_scores=[0.0]), "tokenizer.ggml.scores: expected a number for each of 4096 tokens"),
    (lambda w: spm(w), "4096 tokens, but the embedding has 512 rows"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "text"), CHANGES, ids=[text[:40] for _, text in CHANGES])
def test_models_that_are_not_understood(change, text, model, refused, tmp_path):
    put = gguf.GGUFWriter.add_key_value

    def replace(writer):
        """Settings that are there already are given anew."""

        def put_anew(self, key, *more, **options):
            self.kv_data[0].pop(key, None)
            put(self, key, *more, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gguf.GGUFWriter, "add_key_value", put_anew)
            change(writer)

    path = gguf_files.write(model("tiny-llama"), tmp_path / "model.gguf", change=replace)
    refused(path, text)


def test_unknown_settings_are_warned_of(model, convert, tmp_path):
    path = gguf_files.write(
        model("tiny-llama"), tmp_path / "model.gguf", change=lambda w: w.add_float32("llama.colour", 0.5)
    )
    assert "warning: " in convert(path)[2] and 'setting "llama.colour" is not known, and ignored' in convert(path)[2]
