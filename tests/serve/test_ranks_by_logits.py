"""Scores by models that go on with a prompt, of the logits that its last token has: LogitScore of sentence-transformers, and
GGUF's rerank template."""

import json
import math
import subprocess
import sys

import gguf
import gguf_files
import hf
import numpy as np
import pytest
from harness import BUILD, ROOT, built, convert_directory

FABLE = ROOT / "models/fable-4m"
YES, NO = 900, 700
QUERY, INSTRUCTION = "Who lives in the forest?", 'Find "animals"'
TEXTS = ["The fox lives in the forest.\n", "A king had three sons and", "", "x " * 200]
TEMPLATE = """{%- set system = messages | selectattr("role", "eq", "system") | map(attribute="content") | first -%}
<s>Judge: {{ system }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}</s>
{{- " Answer:" if add_generation_prompt }}"""


def prompt_of(text):
    return f"<s>Judge: {INSTRUCTION}\n<Query>: {QUERY}\n<Document>: {text}</s> Answer:"


def modules(folder, **tokens):
    kinds = ("base.modules.transformer.Transformer", "cross_encoder.modules.logit_score.LogitScore")
    listed = [
        {"path": "" if i == 0 else "1_LogitScore", "type": f"sentence_transformers.{k}"} for i, k in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_LogitScore").mkdir(exist_ok=True)
    (folder / "1_LogitScore/config.json").write_text(json.dumps({"true_token_id": YES, **tokens}))
    prompts = {"prompts": {"web": INSTRUCTION}, "default_prompt_name": "web"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    texts = {"processing_kwargs": {"chat_template": {"add_generation_prompt": True}}}
    (folder / "sentence_bert_config.json").write_text(json.dumps(texts))
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def recurrent(folder):
    tokenizer = ("--vocab", "4096", "--tokenizer", FABLE, "--dtype", "fp32")
    subprocess.run([sys.executable, ROOT / "tools/random_hf_model.py", "tiny-lfm2", folder, *tokenizer], check=True)


@pytest.fixture(scope="module", params=["fable", "one token", "recurrent"])
def ranks(request, start, tmp_path_factory):
    """(server, model file, whether there is a second token)"""
    folder = tmp_path_factory.mktemp("ranks")
    if request.param == "recurrent":
        recurrent(folder / "source")
    else:
        hf.copy(FABLE, folder / "source")
    no = None if request.param == "one token" else NO
    modules(folder / "source", false_token_id=no)
    model = convert_directory(folder / "source", folder / "model.bin")
    return start("--parallel", 2, "-c", 512, "--set", "machine.chunk=64", model=model), model, no


def expected(server, model, no, text, tmp_path):
    """By the logits of all of the prompt."""
    prompt = prompt_of(text)
    ids = server.post("/tokenize", content=prompt, add_special=False, parse_special=True).json["tokens"]
    np.array(ids, np.int32).tofile(tmp_path / "ids")
    words = [built(BUILD / "tests/parity/driver"), model, tmp_path / "ids", tmp_path / "out", "threads=1", "kv=fp32"]
    subprocess.run(words, check=True, capture_output=True)
    row = np.fromfile(tmp_path / "out", np.float32).reshape(len(ids), -1)[-1]
    return float(row[YES] - (0 if no is None else row[no])), len(ids)


def test_scores_are_the_last_logits(ranks, tmp_path):
    server, model, no = ranks
    answer = server.post("/v1/rerank", query=QUERY, documents=TEXTS).json
    found = {entry["index"]: entry["relevance_score"] for entry in answer["results"]}
    read = 0
    for i, text in enumerate(TEXTS):
        score, n = expected(server, model, no, text, tmp_path)
        assert found[i] == pytest.approx(1 / (1 + math.exp(-score)), abs=3e-3), i
        read += n
    assert answer["usage"]["prompt_tokens"] == read
    assert len({round(score, 4) for score in found.values()}) == len(TEXTS)
    assert server.post("/v1/completions", prompt="Once", max_tokens=2).status == 200  # it goes on with texts, too


def test_gguf(start, tmp_path):
    """The rows of the two tokens, and a template with places for the texts."""
    source = hf.make("tiny-qwen3", tmp_path / "source", "--dtype", "fp32")
    rows = np.random.default_rng(3).normal(size=(2, 128)).astype(np.float32)

    def change(writer, template="Q: {query}\nD: {document}\nA\n"):
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_tensor("cls.output.weight", rows)
        if template:
            writer.add_string("tokenizer.chat_template.rerank", template)

    path = gguf_files.write(source, tmp_path / "ranks.gguf", change=change)
    model = convert_directory(path, tmp_path / "model.bin")
    length = int.from_bytes(model.read_bytes()[32:40], "little")
    metadata = json.loads(model.read_bytes()[64 : 64 + length])
    assert metadata["config"]["score"] == {"by": "last", "end": -1}
    assert metadata["chat_template"] == "Q: {{ messages[0]['content'] }}\nD: {{ messages[1]['content'] }}\nA\n\n"
    entry = next(t for t in metadata["tensors"] if t["name"] == "score.out")
    stored = np.frombuffer(model.read_bytes()[entry["offset"] :][: entry["length"]], "<f4")
    assert np.array_equal(stored, rows[0] - rows[1])


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"true_token_id": None}, "expected true_token_id and false_token_id"),
        ({"true_token_id": 4096}, "LogitScore: found tokens [4096, 700], expected 0 to 4095"),
        ({"template": "{{ messages[0].content }}"}, "no chat template has the roles 'query' and 'document'"),
    ],
)
def test_refused(changes, text, tmp_path, monkeypatch, capsys):
    folder = hf.copy(FABLE, tmp_path / "source")
    modules(folder, **{"false_token_id": NO, **{key: value for key, value in changes.items() if key != "template"}})
    if "template" in changes:
        (folder / "chat_template.jinja").write_text(changes["template"])
    code, _, err = hf.call(monkeypatch, capsys, folder, tmp_path / "model.bin")
    assert code == 3 and text in err
