"""What tools/convert.py must not convert: one line that names the file and the thing, the exit code, and nothing written."""

import json
import struct

import hf
import numpy as np
import pytest

Q = "model.layers.0.self_attn.q_proj.weight"


# ------------------------------------------------------------------------------------ *.safetensors


def without(tensors, name):
    del tensors[name]


def add(tensors, name):
    tensors[name] = ["BF16", [2], bytes(4)]


def reshape(tensors, name):
    tensors[name][1] = list(reversed(tensors[name][1]))


@pytest.mark.parametrize(
    ("base", "change", "name", "text"),
    [
        ("llama", without, Q, f'tensor "{Q}" is missing, expected one of shape [128, 128]'),
        ("llama", without, "model.norm.weight", 'tensor "model.norm.weight" is missing'),
        ("mixtral", without, "model.layers.2.block_sparse_moe.experts.3.w2.weight", "experts.3.w2.weight\" is missing"),
        ("llama", add, "model.layers.0.self_attn.q_proj.bias", "is not known, or not called for by config.json"),
        ("llama", add, "model.layers.3.mlp.up_proj.weight", "is not known, or not called for by config.json"),
        ("llama", add, 'bad\n"name', r'tensor "bad\n\"name" is not known'),
        ("llama", reshape, "model.layers.0.mlp.up_proj.weight", "found shape [128, 352], expected [352, 128]"),
    ],
)  # fmt: skip
def test_tensors(base, change, name, text, directory, refused):
    broken = directory(base)
    tensors = hf.read_tensors(broken)
    change(tensors, name)
    hf.write_tensors(broken / "model.safetensors", tensors)
    refused(broken, text)


def test_head_that_is_not_the_embedding(directory, refused):
    broken = directory()
    tensors = hf.read_tensors(broken)
    dtype, shape, data = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = [dtype, shape, data[:-1] + bytes([data[-1] ^ 1])]
    hf.write_tensors(broken / "model.safetensors", tensors)
    refused(broken, "tie_word_embeddings is true, but tensor 'lm_head.weight' is not the embedding's copy")


def header_with(**changes):
    return lambda header: dict(header, **{Q: dict(header[Q], **changes)})


def duplicate(header):
    text = json.dumps(header)
    return (text[:-1] + f', "{Q}": ' + json.dumps(header[Q]) + "}").encode()


def moved(by):
    return lambda header: header_with(data_offsets=[n + by for n in header[Q]["data_offsets"]])(header)


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        (
            header_with(dtype="F8_E5M2"),
            f'tensor "{Q}": type "F8_E5M2" is not supported, expected one of F32, F16, BF16',
        ),
        (header_with(dtype="F64"), 'type "F64" is not supported'),
        (
            header_with(dtype="I8", shape=[128, 256]),
            f'tensor "{Q}": type "I8" is not supported, expected one of F32, F16, BF16',
        ),
        (header_with(dtype=["F32"]), 'type ["F32"] is not supported'),
        (header_with(dtype="F32"), "32768 bytes, but shape [128, 128] of F32 has 65536"),
        (header_with(shape=[2**40, 2**40]), "32768 bytes, but shape [1099511627776, 1099511627776] of BF16 has"),
        (header_with(shape=[-128, -128]), "expected sizes and begin <= end"),
        (header_with(shape=[128.0, 128]), "expected sizes and begin <= end"),
        (header_with(shape=[True, 16384]), "expected sizes and begin <= end"),
        (header_with(data_offsets=[5, 3]), "expected sizes and begin <= end"),
        (header_with(data_offsets=[0]), "expected sizes and begin <= end"),
        (header_with(more=1), "expected dtype, shape and data_offsets"),
        (moved(-64), f'tensor "{Q}" overlaps the one before it'),
        (moved(64), f'tensor "{Q}" leaves a gap before it'),
        (moved(1 << 40), "leaves a gap before it"),
        (duplicate, f'header: duplicate key "{Q}"'),
        (lambda header: b"{" * 9, "header: not JSON"),
        (lambda header: b"\xff\xfe", "header: not UTF-8"),
        (lambda header: dict(header, x=5), 'tensor "x": found 5, expected dtype, shape and data_offsets'),
    ],
)
def test_header(lie, text, directory, refused):
    broken = directory()
    tensors = hf.read_tensors(broken)
    hf.write_tensors(broken / "model.safetensors", tensors, lie(hf.header_of(tensors)))
    refused(broken, "model.safetensors", text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: b"", "0 bytes: not a safetensors file, or truncated"),
        (lambda data: data[:5], "5 bytes: not a safetensors file, or truncated"),
        (lambda data: data[:40], "truncated: header of"),
        (lambda data: data[:-1], "truncated: tensor"),
        (lambda data: data[: len(data) // 2], "truncated: tensor"),
        (lambda data: data + b"\0", "something follows the last tensor"),
        (lambda data: bytes(8) + data[8:], "header of 0 bytes, expected 2 to"),
        (lambda data: struct.pack("<Q", 2**64 - 1) + data[8:], "header of 18446744073709551615 bytes, expected 2 to"),
        (lambda data: b"<!DOCTYPE html><html></html>", "a web page, not a safetensors file"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a git-lfs pointer"),
    ],
)
def test_file(change, text, directory, refused):
    broken = directory()
    path = broken / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))
    refused(broken, "model.safetensors", text)


# ------------------------------------------------------------------------------------ which files


def test_pickles(directory, refused):
    broken = directory()
    (broken / "model.safetensors").rename(broken / "pytorch_model.bin")
    refused(broken, 'no *.safetensors, only "pytorch_model.bin": pickle files can run programs and are not read')


def test_no_weights(directory, refused):
    broken = directory()
    (broken / "model.safetensors").unlink()
    refused(broken, "no *.safetensors files")


def test_several_files_without_index(directory, refused):
    broken = directory("sharded")
    (broken / "model.safetensors.index.json").unlink()
    refused(broken, "*.safetensors files, but no model.safetensors.index.json")


def test_missing_shard(directory, refused):
    broken = directory("sharded")
    shard = sorted(broken.glob("*.safetensors"))[1]
    shard.unlink()
    refused(broken, f'shard "{shard.name}" is missing')


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("../model/model.safetensors", "leaves the model's directory"),
        ("sub/../../x.safetensors", "leaves the model's directory"),
        ("/etc/passwd", "leaves the model's directory"),
        ("C:\\x.safetensors", "leaves the model's directory"),
        ("..\\x.safetensors", "leaves the model's directory"),
        ("absent.safetensors", 'shard "absent.safetensors" is missing'),
        ("x\0y", "expected a file's name"),
        (5, "is in 5, expected a file's name"),
        ("", "expected a file's name"),
    ],
)
def test_index_paths(file, text, directory, refused):
    broken = directory("sharded")
    index = broken / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    hf.edit_json(index, weight_map=dict(places, **{Q: file}))
    refused(broken, "model.safetensors.index.json", text)


@pytest.mark.parametrize("places", [None, {}, [], "x"])
def test_index_without_places(places, directory, refused):
    broken = directory("sharded")
    hf.edit_json(broken / "model.safetensors.index.json", weight_map=places)
    refused(broken, "as weight_map, expected an object")


def test_index_that_is_wrong_about_a_shard(directory, refused):
    broken = directory("sharded")
    index = broken / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    other = next(file for file in places.values() if file != places[Q])
    hf.edit_json(index, weight_map=dict(places, **{Q: other}))
    refused(broken, f'tensor "{Q}" is here, but the index has it in "{other}"')


def test_index_that_names_what_is_needed_and_not_there(directory, refused):
    broken = directory("sharded")
    index = broken / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    file = places[Q]
    tensors = hf.read_tensors(broken / file)
    del tensors[Q]
    hf.write_tensors(broken / file, tensors)
    refused(broken, f'{file}: tensor "{Q}" is missing, where the index has it, expected one of shape [128, 128]')
    hf.edit_json(index, weight_map={name: place for name, place in places.items() if name != Q})
    refused(broken, f'model: tensor "{Q}" is missing, expected one of shape [128, 128]')


KINDS = [
    (
        "adapter_config.json",
        '{"base_model_name_or_path": "x/y"}',
        'an adapter (LoRA) for "x/y", not a model: give that',
    ),
    ("params.json", "{}", "a model in the form of its maker (Mistral or Meta)"),
    ("model-q4.gguf", "", "GGUF files without config.json"),
    ("notes.txt", "", "no config.json: not a Hugging Face model directory"),
]


@pytest.mark.parametrize(("name", "text", "says"), KINDS)
def test_directories_of_other_kinds(name, text, says, directory, refused):
    broken = directory()
    (broken / "config.json").unlink()
    (broken / name).write_text(text)
    refused(broken, says)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json"])
def test_links_that_leave_the_directory(name, directory, refused, tmp_path):
    broken = directory()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes((broken / name).read_bytes() if (broken / name).exists() else b"{}")
    (broken / name).unlink(missing_ok=True)
    (broken / name).symlink_to(elsewhere)
    refused(broken, f"{name}: a symbolic link that leaves the model's directory", "--follow-links allows it")
    elsewhere.unlink()
    refused(broken, f"{name}: a symbolic link to a file that is missing")


# ------------------------------------------------------------------------------------ values


def with_value(broken, name, value, dtype="F32"):
    """Puts `value` into a tensor, which becomes of type `dtype`."""
    tensors = hf.read_tensors(broken)
    count = len(tensors[name][2]) // hf.ITEM_SIZE[tensors[name][0]]
    values = np.zeros(count, np.float32)
    values[count // 3] = value
    kind = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}[dtype]
    tensors[name] = [dtype, tensors[name][1], hf.random_hf_model.encode(values, kind).tobytes()]
    hf.write_tensors(broken / "model.safetensors", tensors)


@pytest.mark.parametrize("name", [Q, "model.norm.weight"])
@pytest.mark.parametrize("dtype", ["F32", "F16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_check_finite(name, dtype, value, directory, refused, monkeypatch, capsys, tmp_path):
    broken = directory()
    with_value(broken, name, value, dtype)
    refused(broken, f'tensor "{name}" has a value that is NaN or infinite', options=["--check-finite"])
    for options in ([], ["--dtype", "fp16"]):
        assert hf.call(monkeypatch, capsys, broken, tmp_path / "model.bin", *options)[0] == 0


@pytest.mark.parametrize(
    ("value", "dtype", "wanted", "fits"),
    [
        (65519, "F32", "fp16", True),
        (65520, "F32", "fp16", False),
        (-1e6, "BF16", "fp16", False),
        (65280, "BF16", "fp16", True),
        (3.4e38, "F32", "bf16", False),
        (3.38e38, "F32", "bf16", True),
        (65504, "F16", "bf16", True),
    ],
)
def test_overflow(value, dtype, wanted, fits, directory, refused, monkeypatch, capsys, tmp_path):
    broken = directory()
    with_value(broken, Q, value, dtype)
    if fits:
        assert hf.call(monkeypatch, capsys, broken, tmp_path / "model.bin", "--dtype", wanted)[0] == 0
    else:
        refused(broken, f'tensor "{Q}": value', f"does not fit in {wanted}", options=["--dtype", wanted])


def test_norms_never_overflow(directory, monkeypatch, capsys, tmp_path):
    good = directory()
    with_value(good, "model.norm.weight", 1e6)
    assert hf.call(monkeypatch, capsys, good, tmp_path / "model.bin", "--dtype", "fp16")[0] == 0
