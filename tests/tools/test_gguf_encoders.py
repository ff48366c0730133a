"""Encoders of GGUF files beside the directories that they were made from: the same model, bit for bit."""

import base64
import dataclasses
import json
import struct
import sys

import gguf
import gguf_files
import hf
import numpy as np
import pytest
from safetensors.numpy import load_file

sys.path.insert(0, str(hf.ROOT / "tests/parity"))
import embed_cases

CASES, PIECES = embed_cases.make_cases(), embed_cases.pieces()
SPACE = "\u2581"
Kind = gguf.TokenType


def add_wordpiece(writer, tokenizer):
    special = {entry["id"] for entry in tokenizer["added_tokens"]}
    pieces = list(tokenizer["model"]["vocab"])
    texts = [
        text if i in special else text[2:] if text.startswith("##") else SPACE + text for i, text in enumerate(pieces)
    ]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(texts)
    writer.add_token_types([Kind.CONTROL if i in special else Kind.NORMAL for i in range(len(texts))])
    writer.add_uint32("tokenizer.ggml.cls_token_id", pieces.index("[CLS]"))
    writer.add_uint32("tokenizer.ggml.seperator_token_id", pieces.index("[SEP]"))


def add_unigram(writer, tokenizer):
    pieces = tokenizer["model"]["vocab"]
    writer.add_tokenizer_model("t5")
    writer.add_token_list([text for text, _ in pieces])
    writer.add_token_scores([score for _, score in pieces])
    kinds = {0: Kind.CONTROL, 1: Kind.CONTROL, 2: Kind.CONTROL, 3: Kind.UNKNOWN}
    writer.add_token_types([kinds.get(i, Kind.NORMAL) for i in range(len(pieces))])
    writer.add_add_space_prefix(True)
    charsmap = tokenizer["normalizer"]["normalizers"][0]["precompiled_charsmap"]
    writer.add_precompiled_charsmap(base64.b64decode(charsmap))


def write(case, directory, path, pooling=None):
    config, tokenizer = (json.loads((directory / name).read_text()) for name in ("config.json", "tokenizer.json"))
    of_roberta = config["model_type"] == "xlm-roberta"
    kind = gguf.MODEL_ARCH.NOMIC_BERT if config["model_type"] == "nomic_bert" else gguf.MODEL_ARCH.BERT
    name = gguf.MODEL_ARCH_NAMES[kind]
    writer = gguf.GGUFWriter(str(path), name)
    if name == "nomic-bert":
        writer.add_rope_freq_base(1000.0)
    before = 2 if of_roberta else 0
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"] - before)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    kinds = {None: 4, "mean_tokens": 1, "cls_token": 2}
    add = writer.add_bool if pooling is True else writer.add_uint32
    add(f"{name}.pooling_type", kinds[case.pooling] if pooling is None else pooling)
    (add_unigram if of_roberta else add_wordpiece)(writer, tokenizer)
    table = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    for name, data in load_file(directory / "model.safetensors").items():
        name = name.removeprefix("bert.").removeprefix("roberta.")
        if name.startswith("pooler."):
            continue
        data = data[before:] if name == "embeddings.position_embeddings.weight" else data
        writer.add_tensor(table.get_name(name, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(source, path, monkeypatch, capsys):
    """(config and tokenizer without what tells their sources apart, tensors)."""
    code, _, err = hf.call(monkeypatch, capsys, source, path)
    assert code == 0 and "warning: " not in err, err
    metadata, tensors = read(path)
    # Blanks that are many become one, whichever step does it.
    facts = {**metadata["config"], **metadata["tokenizer"]}
    return {key: value for key, value in facts.items() if key not in ("architecture", "normalizers")}, tensors


def read(path):
    """(metadata, tensors)"""
    data = path.read_bytes()
    metadata = json.loads(data[64 : 64 + struct.unpack("<Q", data[32:40])[0]])
    return metadata, {t["name"]: (t["shape"], data[t["offset"] :][: t["length"]]) for t in metadata["tensors"]}


@pytest.mark.parametrize("name", ["bert-first", "bert-mean", "nomic-mean", "xlmr-first", "xlmr-score"])
def test_the_same_model(name, tmp_path, monkeypatch, capsys):
    case = CASES[name]
    if name == "bert-first":  # its activation is one that no setting says
        case = dataclasses.replace(case, config={**case.config, "hidden_act": "gelu"})
    directory = embed_cases.write(case, tmp_path / name)
    path = write(case, directory, tmp_path / f"{name}.gguf")
    wanted, found = (converted(source, tmp_path / "model.bin", monkeypatch, capsys) for source in (directory, path))
    assert found == wanted


@pytest.mark.parametrize("layers", [2, 0])
def test_embedding_gemma(layers, monkeypatch, capsys, tmp_path):
    """Its dense layers, which a file may lack, are named by the folders that they come from."""
    case = CASES["gemma3-mean"]
    case = dataclasses.replace(case, config={**case.config, "query_pre_attn_scalar": 20}, dense=case.dense[:layers])
    directory = embed_cases.write(case, tmp_path / "model")
    (directory / "tokenizer.json").unlink()
    hf.edit_json(directory / "config.json", bos_token_id=2, eos_token_id=1)

    def change(writer):
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        writer.add_sliding_window_pattern(2)
        for i in range(2, 2 + layers):
            writer.add_tensor(
                f"dense_{i}.weight", load_file(directory / f"{i}_Dense/model.safetensors")["linear.weight"]
            )

    path, results = gguf_files.write(directory, tmp_path / "model.gguf", change=change), []
    for source in (directory, path):
        code, _, err = hf.call(monkeypatch, capsys, source, tmp_path / "model.bin")
        assert code == 0, err
        results.append(read(tmp_path / "model.bin"))
    assert ("vectors lack them" in err) == (layers == 0)
    (wanted, tensors), (found, others) = results
    assert others == tensors and found["config"].pop("pooling")["dense"] == list(case.dense[:layers])
    wanted["config"].pop("pooling")
    assert found["config"] == wanted["config"]


def test_nomic_as_transformers_saves_it(tmp_path, monkeypatch, capsys):
    """Under other names, q, k and v apart."""
    directory = embed_cases.write(CASES["nomic-mean"], tmp_path / "model")
    wanted = converted(directory, tmp_path / "model.bin", monkeypatch, capsys)
    ours = {
        "encoder.": "", "emb_ln": "embeddings.LayerNorm", "attn.out_proj": "self_attn.o_proj", "fc11": "up_proj",
        "fc12": "gate_proj", "fc2": "down_proj", "norm1": "post_attention_layernorm", "norm2": "post_mlp_layernorm",
    }  # fmt: skip
    found = {}
    for name, (dtype, shape, data) in hf.read_tensors(directory).items():
        for theirs, new in ours.items():
            name = name.replace(theirs, new)
        if "Wqkv" not in name:
            found[name] = [dtype, shape, data]
            continue
        for i, part in enumerate("qkv"):
            third = len(data) // 3
            rows = [dtype, [shape[0] // 3, shape[1]], data[i * third : (i + 1) * third]]
            found[name.replace("attn.Wqkv", f"self_attn.{part}_proj")] = rows
    hf.write_tensors(directory / "model.safetensors", found)
    config = json.loads((directory / "config.json").read_text())
    own = ("n_", "rotary", "qkv", "mlp_", "causal", "activation", "max_trained", "layer_norm_epsilon")
    kept = {key: value for key, value in config.items() if not key.startswith(own)}
    (directory / "config.json").write_text(json.dumps(kept))
    assert converted(directory, tmp_path / "model.bin", monkeypatch, capsys) == wanted


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rotary_scaling_factor": 2}, "rotary_scaling_factor: found 2, expected null"),
        ({"prenorm": True}, "prenorm: found true, expected false"),
        ({"activation_function": "geglu"}, 'activation_function: found "geglu", expected "swiglu"'),
    ],
)
def test_nomic_with_what_yalm_lacks(change, said, tmp_path, monkeypatch, capsys):
    directory = embed_cases.write(CASES["nomic-mean"], tmp_path / "model")
    hf.edit_json(directory / "config.json", **change)
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "model.bin")
    assert code == 3 and said in err.splitlines()[-1], err


@pytest.mark.parametrize("capitals", [True, False])
def test_capitals_count_where_pieces_have_some(capitals, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(embed_cases, "pieces", lambda: [p for p in PIECES if capitals or p == p.lower() or "[" in p])
    directory = embed_cases.write(embed_cases.make_cases()["bert-mean"], tmp_path / "model")
    path = write(CASES["bert-mean"], directory, tmp_path / "model.gguf")
    assert hf.call(monkeypatch, capsys, path, tmp_path / "model.bin")[0] == 0
    data = (tmp_path / "model.bin").read_bytes()
    assert (b'"lowercase"' in data) == (not capitals)


@pytest.mark.parametrize(
    ("pooling", "said"),
    [
        (0, "bert.pooling_type is 0"),
        (True, "bert.pooling_type is true, expected an integer"),
        (4, "the head that scores is not whole"),
    ],
)
def test_what_no_vector_comes_from(pooling, said, tmp_path, monkeypatch, capsys):
    directory = embed_cases.write(CASES["bert-mean"], tmp_path / "model")
    path = write(CASES["bert-mean"], directory, tmp_path / "model.gguf", pooling)
    code, _, err = hf.call(monkeypatch, capsys, path, tmp_path / "model.bin")
    assert code == 3 and said in err and err.count("\n") == 1, err
