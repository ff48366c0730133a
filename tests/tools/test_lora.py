"""tools/convert.py --lora: W + s B A by its definition, on plain weights, on quantised ones and on GGUF files; and
adapters that do not fit."""

import json

import gguf
import gguf_files
import hf
import numpy as np
import pytest
from read_types import dequantise

RANK = 4
TARGETS = {"q_proj": "self_attn", "v_proj": "self_attn", "down_proj": "mlp"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return hf.make("tiny-llama", tmp_path_factory.mktemp("plain") / "tiny", "--dtype", "fp32")


def adapter(directory, model, settings=None, tensors=None, targets=TARGETS, rank=RANK):
    """Writes an adapter as PEFT does; returns {name in the model file: B A} of each matrix."""
    directory.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "target_modules": list(targets), "bias": "none"}
    (directory / "adapter_config.json").write_text(json.dumps(config | (settings or {})))
    shapes = {name: shape for name, (_, shape, _) in hf.read_tensors(model).items()}
    rng, found, products = np.random.default_rng(4), {}, {}
    for n in range(json.loads((model / "config.json").read_text())["num_hidden_layers"]):
        for target, block in targets.items():
            name = f"model.layers.{n}.{block}.{target}"
            rows, columns = shapes[f"{name}.weight"]
            a = rng.standard_normal((rank, columns)).astype(np.float32) * 0.1
            b = rng.standard_normal((rows, rank)).astype(np.float32) * 0.1
            found[f"base_model.model.{name}.lora_A.weight"] = ["F32", [rank, columns], a.tobytes()]
            found[f"base_model.model.{name}.lora_B.weight"] = ["F32", [rows, rank], b.tobytes()]
            products[f"layers.{n}.{target.removesuffix('_proj')}"] = b.astype(np.float64) @ a
    found.update(tensors or {})
    hf.write_tensors(
        directory / "adapter_model.safetensors", {name: tensor for name, tensor in found.items() if tensor}
    )
    return products


def floats(tensors, name):
    entry, data = tensors[name]
    assert entry["dtype"] == "fp32"
    return np.frombuffer(data, "<f4").reshape(entry["shape"])


SCALES = [
    ({}, 6 / 4, {}),
    ({"use_rslora": True}, 6 / 2, {}),
    ({"alpha_pattern": {"down_proj": 2, "layers.1.self_attn.q_proj": 1}}, 6 / 4, {"down": 2 / 4, "layers.1.q": 1 / 4}),
    ({"fan_in_fan_out": True, "init_lora_weights": True, "lora_dropout": 0.1}, 6 / 4, {}),
]


@pytest.mark.parametrize(("settings", "scale", "own"), SCALES)
def test_added_by_the_definition(settings, scale, own, plain, convert, tmp_path):
    before = convert(plain, "--dtype", "fp32")[1]
    products = adapter(tmp_path / "lora", plain, settings)
    metadata, after, err = convert(plain, "--lora", tmp_path / "lora")
    assert metadata["source"]["adapter"] == "lora" and f"added to {len(products)} tensors" in err
    for name, (_, data) in after.items():
        if name not in products:
            assert data == before[name][1]
            continue
        s = next((value for part, value in own.items() if name.endswith(part)), scale)
        wanted = floats(before, name) + s * products[name]
        assert np.abs(floats(after, name) - wanted).max() < 1e-6, name


def test_ranks_of_their_own(plain, convert, tmp_path):
    adapter(tmp_path / "lora", plain, {"r": 9, "rank_pattern": {"q_proj|v_proj": RANK, "down_proj": RANK}})
    convert(plain, "--lora", tmp_path / "lora")
    adapter(tmp_path / "lora", plain, {"rank_pattern": {"q_proj": 9}})
    with pytest.raises(AssertionError, match=r"is of rank 4, adapter_config\.json says 9"):
        convert(plain, "--lora", tmp_path / "lora")


def test_types_stay_what_they_are_without_it(convert, tmp_path):
    model = hf.make("tiny-llama", tmp_path / "tiny", "--dtype", "bf16")
    adapter(tmp_path / "lora", model)
    assert {entry["dtype"] for name, (entry, _) in convert(model, "--lora", tmp_path / "lora")[1].items()} == {
        "bf16",
        "fp32",
    }


def test_on_a_gguf_file(plain, convert, tmp_path):
    """The rows of q that the file has in another order are where the adapter expects them; what is quantised becomes q8."""
    products = adapter(tmp_path / "lora", plain)
    path = gguf_files.write(plain, tmp_path / "model.gguf")
    wanted = convert(plain, "--lora", tmp_path / "lora")[1]
    found = convert(path, "--lora", tmp_path / "lora")[1]
    assert {name: data for name, (_, data) in found.items()} == {name: data for name, (_, data) in wanted.items()}
    path = gguf_files.write(plain, tmp_path / "q4.gguf", {"*": gguf.GGMLQuantizationType.Q4_0})
    exact, found = (
        convert(path, "--lora", tmp_path / "lora", "--dtype", "fp32")[1],
        convert(path, "--lora", tmp_path / "lora"),
    )
    for name in products:
        entry, data = found[1][name]
        assert entry["dtype"] == "q8"
        off = dequantise(entry, data)[0] - floats(exact, name)
        assert np.square(off).mean() < 1e-4 * np.square(floats(exact, name)).mean()
    assert found[1]["layers.0.k"][0]["dtype"] == "q4" and "of Q4_0 with an adapter become q8" in found[2]


def test_whole_modules_and_embeddings(plain, convert, tmp_path):
    before = convert(plain)[1]
    rng = np.random.default_rng(5)
    head = rng.standard_normal((512, 128)).astype(np.float32)
    a, b = rng.standard_normal((RANK, 512)).astype(np.float32), rng.standard_normal((128, RANK)).astype(np.float32)
    more = {
        "base_model.model.lm_head.weight": ["F32", [512, 128], head.tobytes()],
        "base_model.model.model.embed_tokens.base_layer.weight": hf.read_tensors(plain)["model.embed_tokens.weight"],
        "base_model.model.model.embed_tokens.lora_embedding_A": ["F32", [RANK, 512], a.tobytes()],
        "base_model.model.model.embed_tokens.lora_embedding_B": ["F32", [128, RANK], b.tobytes()],
    }
    adapter(tmp_path / "lora", plain, {"modules_to_save": ["lm_head"]}, more)
    after = convert(plain, "--lora", tmp_path / "lora")[1]
    assert (floats(after, "classifier") == head).all()
    wanted = floats(before, "embedding") + 1.5 * (b.astype(np.float64) @ a).T
    assert np.abs(floats(after, "embedding") - wanted).max() < 1e-5


Q = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
REFUSED = [
    ({"peft_type": "LOHA"}, {}, 'peft_type: "LOHA" is not supported'),
    ({"use_dora": True}, {}, "use_dora: true is not supported: merge it with peft"),
    ({"bias": "all"}, {}, 'bias: "all" is not supported'),
    ({"init_lora_weights": "pissa"}, {}, 'init_lora_weights: "pissa" is not supported'),
    ({"target_parameters": ["mlp.experts.down_proj"]}, {}, "target_parameters: "),
    ({"lora_alpha": "x"}, {}, 'lora_alpha: found "x", expected a number above 0'),
    ({"r": 8}, {}, "is of rank 4, adapter_config.json says 8"),
    ({"alpha_pattern": {"(": 2}}, {}, "alpha_pattern: pattern"),
    ({"alpha_pattern": {"q_proj": "x"}}, {}, "not of the form that is expected: TypeError"),
    ({"rank_pattern": [1]}, {}, "not of the form that is expected: AttributeError"),
    ({}, {f"{Q}B.weight": None}, f'tensor "{Q[17:]}B.weight" is missing'),
    ({}, {f"{Q}A.weight": ["F32", [4, 64], bytes(1024)]}, "an adapter of another model"),
    ({}, {"base_model.model.model.layers.9.mlp.up_proj.lora_A.weight": ["F32", [4, 128], bytes(2048)],
          "base_model.model.model.layers.9.mlp.up_proj.lora_B.weight": ["F32", [352, 4], bytes(5632)]},
     'no matrix "model.layers.9.mlp.up_proj.weight"'),
    ({}, {"base_model.model.lm_head.weight": ["F32", [513, 128], bytes(513 * 512)]},
     "[513, 128] does not fit: the model has [512, 128]"),
    ({}, {f"{Q}magnitude_vector": ["F32", [128], bytes(512)]}, "does not fit"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "tensors", "text"), REFUSED, ids=[r[2][:40] for r in REFUSED])
def test_refused(settings, tensors, text, plain, monkeypatch, capsys, tmp_path):
    adapter(tmp_path / "lora", plain, settings, tensors)
    check_refused(plain, text, monkeypatch, capsys, tmp_path)


def check_refused(plain, text, monkeypatch, capsys, tmp_path):
    code, _, err = hf.call(monkeypatch, capsys, plain, tmp_path / "model.bin", "--lora", tmp_path / "lora")
    lines = [line for line in err.splitlines() if "warning: " not in line]
    assert code == 3 and len(lines) == 1 and text in lines[0], err
    assert not (tmp_path / "model.bin").exists()


def test_directories_that_are_no_adapter(plain, monkeypatch, capsys, tmp_path):
    assert hf.call(monkeypatch, capsys, plain, tmp_path / "model.bin", "--lora", tmp_path / "absent")[0] == 2
    (tmp_path / "lora").mkdir()
    check_refused(plain, "no adapter_config.json: not an adapter of PEFT's", monkeypatch, capsys, tmp_path)
    adapter(tmp_path / "lora", plain)
    (tmp_path / "lora/adapter_model.safetensors").rename(tmp_path / "lora/adapter_model.bin")
    check_refused(plain, "no adapter_model.safetensors: an adapter's weights are", monkeypatch, capsys, tmp_path)
