"""tools/convert.py on directories of sentence-transformers': what becomes of their modules."""

import json

import gguf_files
import hf
import pytest


@pytest.fixture
def directory(tmp_path):
    """directory(modules, settings of pooling): a small model as sentence-transformers keeps it."""

    def make(modules=("Transformer", "Pooling", "Normalize"), settings=None):
        model = hf.make("tiny-qwen3", tmp_path / "model")
        written = [
            {"path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(modules)
        ]
        (model / "modules.json").write_text(json.dumps(written))
        (model / "1_Pooling").mkdir()
        (model / "1_Pooling/config.json").write_text(json.dumps(settings or {"pooling_mode_lasttoken": True}))
        return model

    return make


@pytest.mark.parametrize(
    ("settings", "by"),
    [
        ({"pooling_mode_lasttoken": True, "pooling_mode_cls_token": False}, "last"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
    ],
)
def test_pooling(settings, by, directory, convert):
    assert convert(directory(settings=settings))[0]["config"]["pooling"] == {"by": by, "end": -1, "matryoshka": 32}


def of_gguf(directory, path, kind, more=lambda writer: None):
    def change(writer):
        writer.add_uint32(f"{writer.arch}.pooling_type", kind)
        writer.add_add_eos_token(True)
        more(writer)

    return gguf_files.write(directory, path, tokenizer=lambda w: gguf_files.bpe(w, "qwen2"), change=change)


@pytest.mark.parametrize(("kind", "by"), [(1, "mean"), (2, "first"), (3, "last")])
def test_decoders_of_gguf(kind, by, tiny, convert, tmp_path):
    """As the directory; what the tokenizer puts behind a text is its eos token."""
    metadata, _, said = convert(of_gguf(tiny("tiny-qwen3"), tmp_path / "model.gguf", kind))
    end = json.loads((tiny("tiny-qwen3") / "config.json").read_text())["eos_token_id"]
    assert metadata["config"]["pooling"] == {"by": by, "end": end, "matryoshka": 32} and "eos token" not in said


def test_a_last_token_that_is_the_text_s(tiny, convert, tmp_path):
    path = of_gguf(
        tiny("tiny-qwen3"), tmp_path / "model.gguf", 3, lambda w: w.kv_data[0].pop("tokenizer.ggml.add_eos_token")
    )
    metadata, _, said = convert(path)
    assert metadata["config"]["pooling"]["end"] == -1 and "none is put behind a text (add_eos_token)" in said


def test_decoders_of_gguf_that_make_no_vectors(tiny, convert, tmp_path):
    metadata, _, said = convert(of_gguf(tiny("tiny-qwen3"), tmp_path / "model.gguf", 0))
    assert "pooling" not in metadata["config"] and "puts its eos token after a text; here it is left out" in said


@pytest.mark.parametrize(
    ("kind", "causal", "text"),
    [
        (4, True, "qwen3.pooling_type is 4, a score's, without tensor 'cls.output.weight'"),
        (5, True, "qwen3.pooling_type is 5, expected 1 to 4"),
        (3, False, "attention.causal is false: Qwen3ForCausalLM both ways is not supported"),
    ],
)
def test_decoders_of_gguf_refused(kind, causal, text, tiny, refused, tmp_path):
    path = of_gguf(tiny("tiny-qwen3"), tmp_path / "model.gguf", kind, lambda w: w.add_causal_attention(causal))
    refused(path, text)


@pytest.mark.parametrize(
    ("config", "saved", "least"),
    [
        ({}, {}, 32),  # Qwen3-Embedding's, whose files say nothing
        ({"matryoshka_dimensions": [40, 16, 48]}, {}, 16),
        ({"is_matryoshka": True}, {}, 1),
        ({"is_matryoshka": False, "matryoshka_dimensions": None}, {}, 32),
        ({}, {"truncate_dim": 24}, 24),
    ],
)
def test_vectors_that_may_be_cut(config, saved, least, directory, convert):
    model = directory()
    hf.edit_json(model / "config.json", **config)
    (model / "config_sentence_transformers.json").write_text(json.dumps(saved))
    metadata, _, said = convert(model)
    assert metadata["config"]["pooling"].get("matryoshka") == least
    assert ("cuts vectors to 24" in said) == bool(saved)


@pytest.mark.parametrize(
    "wrong", [{"matryoshka_dimensions": [0]}, {"matryoshka_dimensions": "64"}, {"truncate_dim": 1.5}]
)
def test_widths_that_are_none(wrong, directory, monkeypatch, capsys, tmp_path):
    model = directory()
    hf.edit_json(model / "config.json", **wrong)
    code, _, err = hf.call(monkeypatch, capsys, model, tmp_path / "out")
    assert code == 3 and "expected widths of vectors" in err.splitlines()[-1]


def test_without_modules_there_is_none(directory, convert):
    model = directory()
    (model / "modules.json").unlink()
    assert "pooling" not in convert(model)[0]["config"]


def test_names_without_their_first_part(directory, convert):
    model = directory()
    wanted = convert(model)[:2]
    tensors = {name.removeprefix("model."): entry for name, entry in hf.read_tensors(model).items()}
    hf.write_tensors(model / "model.safetensors", tensors)
    assert convert(model)[:2] == wanted


@pytest.mark.parametrize(
    ("modules", "settings", "text"),
    [
        (
            ("Transformer", "Pooling", "WordWeights"),
            None,
            'module "sentence_transformers.models.WordWeights" is not supported',
        ),
        (("Transformer", "Pooling"), {"pooling_mode_max_tokens": True}, 'pooling by ["max_tokens"] is not supported'),
        (
            ("Transformer", "Pooling"),
            {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": True},
            "is not supported",
        ),
        (("Transformer", "Pooling"), {"pooling_mode": 3}, "pooling by [3] is not supported"),
        (("Pooling",), None, "no 0_Pooling/config.json, which modules.json names"),
    ],
)
def test_refused(modules, settings, text, directory, monkeypatch, capsys, tmp_path):
    code, _, err = hf.call(monkeypatch, capsys, directory(modules, settings), tmp_path / "out")
    assert code == 3 and text in err.splitlines()[-1] and not (tmp_path / "out").exists()


def test_modules_that_are_no_list(directory, monkeypatch, capsys, tmp_path):
    model = directory()
    for text, expected in (
        ("{}", "expected a list of modules"),
        ("[1]", "module null is not supported"),
        ("[", "not JSON"),
    ):
        (model / "modules.json").write_text(text)
        code, _, err = hf.call(monkeypatch, capsys, model, tmp_path / "out")
        assert code == 3 and expected in err, err


def test_a_dense_layer_elsewhere(directory, monkeypatch, capsys, tmp_path):
    """modules.json may name no folder outside the model's."""
    model = directory(modules=("Transformer", "Pooling", "Dense"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"bias": False, "activation_function": "Identity"}))
    shown = []
    for path in ("../other", str(other), "none"):
        written = json.loads((model / "modules.json").read_text())
        written[2]["path"] = path
        (model / "modules.json").write_text(json.dumps(written))
        code, _, err = hf.call(monkeypatch, capsys, model, tmp_path / "out")
        shown.append(err.splitlines()[-1])
        assert code == 3
    assert all("that leaves the model's directory" in text for text in shown[:2])
    assert "no none/config.json, which modules.json names" in shown[2]


def test_what_is_done_to_texts_elsewhere_is_said(directory, convert):
    model = directory(settings={"pooling_mode": "mean", "include_prompt": False})
    settings = model / "sentence_bert_config.json"
    settings.write_text(json.dumps({"max_seq_length": 100, "do_lower_case": True}))
    err = convert(model)[2]
    context = json.loads((model / "config.json").read_text())["max_position_embeddings"]
    assert f"sentence-transformers cuts texts to 100 tokens; here {context} are read" in err
    assert "in lower case first" in err and "include_prompt is false" in err
    settings.write_text(json.dumps({"max_seq_length": context, "do_lower_case": False}))
    assert "sentence-transformers" not in convert(model)[2]
