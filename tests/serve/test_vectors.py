"""Vectors and scores of texts, by a server of small BERTs, beside the golden ones."""

import base64
import dataclasses
import functools
import json
import math
import signal
import sys
import time

import numpy as np
import pytest
from harness import HANG, ROOT, convert_directory

from tests.cli.test_embed import sentence_model

sys.path.insert(0, str(ROOT / "tests/parity"))
import embed_cases

TEXTS = embed_cases.TEXTS


@pytest.fixture(scope="module")
def serve(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")

    @functools.cache
    def serve_case(name):
        directory = embed_cases.write(embed_cases.make_cases()[name], folder / name)
        model = convert_directory(directory, folder / f"{name}.bin")
        return start("--parallel", 2, model=model), np.load(embed_cases.GOLDEN / f"{name}.npz")

    return serve_case


@pytest.fixture(scope="module")
def vectors(serve):
    return serve("bert-mean")


@pytest.fixture(scope="module")
def ranks(serve):
    return serve("bert-score")


@pytest.fixture(params=("bert-score", "modern-score", "xlmr-score"))
def ranks_of_each(request, serve):
    return serve(request.param)


def near(vector, golden):
    assert len(vector) == len(golden)
    assert np.dot(vector, golden) == pytest.approx(1, abs=1e-3)


def test_openai(vectors):
    server, golden = vectors
    answer = server.post("/v1/embeddings", model="x", input=TEXTS, encoding_format="float").json
    assert answer["object"] == "list" and [entry["index"] for entry in answer["data"]] == list(range(len(TEXTS)))
    for entry, out in zip(answer["data"], golden["out"]):
        near(entry["embedding"], out)
    n = len(golden["ids"]) - len(TEXTS)  # what stands behind each text is the model's affair
    assert answer["usage"] == {"prompt_tokens": n, "total_tokens": n}
    (floats, coded) = (
        server.post("/embeddings", input=TEXTS[0], encoding_format=form).json["data"][0]["embedding"]
        for form in ("float", "base64")
    )
    assert np.array_equal(np.frombuffer(base64.b64decode(coded), "<f4"), np.array(floats, np.float32))


def test_ids_are_the_text(vectors):
    server, golden = vectors
    ids = golden["ids"][1 : golden["ends"][0] - 1].tolist()
    answer = server.post("/v1/embeddings", input=[ids, TEXTS[2], [2, *ids]], dimensions=embed_cases.DIM).json["data"]
    near(answer[0]["embedding"], golden["out"][0])
    near(answer[1]["embedding"], golden["out"][2])
    near(answer[2]["embedding"], golden["out"][0])
    assert server.post("/v1/embeddings", input=ids).json["usage"]["prompt_tokens"] == len(ids) + 1


def test_ollama(vectors):
    server, golden = vectors
    answer = server.post("/api/embed", input=TEXTS[:3]).json
    assert len(answer["embeddings"]) == 3 and answer["prompt_eval_count"] == golden["ends"][2] - 3
    near(answer["embeddings"][2], golden["out"][2])
    near(server.post("/api/embeddings", prompt=TEXTS[0]).json["embedding"], golden["out"][0])
    long = "the fox " * 200
    first = "the fox " * 74  # 149 tokens with what begins a text; another one ends it
    for inputs, said in (([long], "text 1"), ([first, long, long], "text 2 and 1 more"), ([first], None)):
        answer = server.post("/api/embed", input=inputs)
        its = "its" if len(inputs) == 1 else "their"
        assert answer.headers["Warning"] == (said and f'299 yalm "not followed: {said} behind {its} first 149 tokens"')
        assert answer.json["prompt_eval_count"] == 149 * len(inputs)
        near(answer.json["embeddings"][-1], server.post("/api/embed", input=first).json["embeddings"][0])
    answer = server.post("/api/embed", input=["x", long], truncate=False)
    assert answer.status == 400 and "prompt is too long: 401 tokens > 149 maximum" in answer.json["error"]


def test_dimensions(start, tmp_path):
    """Of a model that was trained for fewer: OpenAI's form, and Ollama's."""
    case = embed_cases.make_cases()["bert-mean"]
    case = dataclasses.replace(case, config={**case.config, "is_matryoshka": True})
    server = start(model=convert_directory(embed_cases.write(case, tmp_path / "model"), tmp_path / "model.bin"))
    golden = np.load(embed_cases.GOLDEN / "bert-mean.npz")["out"]
    for n in (1, 7, embed_cases.DIM):
        answer = server.post("/v1/embeddings", input=TEXTS, dimensions=n).json["data"]
        of_ollama = server.post("/api/embed", input=TEXTS, dimensions=n).json["embeddings"]
        for entry, other, out in zip(answer, of_ollama, golden):
            near(entry["embedding"], out[:n] / np.linalg.norm(out[:n]))
            assert other == entry["embedding"]
    for path in ("/v1/embeddings", "/api/embed"):
        answer = server.post(path, input="x", dimensions=embed_cases.DIM + 1)
        assert answer.status == 400 and b"dimensions: found 61, expected 1 to 60" in answer.body
    assert server.post("/v1/embeddings", input="x", dimensions=0).status == 400


def test_llamacpp(vectors):
    server, golden = vectors
    (first, second) = server.post("/embedding", content=TEXTS[:2]).json
    near(first["embedding"][0], golden["out"][0])
    assert second["index"] == 1


def test_rerank(ranks_of_each):
    server, golden = ranks_of_each
    answer = server.post("/v1/rerank", query=embed_cases.QUERY, documents=TEXTS, return_documents=True).json
    scores = {entry["index"]: entry["relevance_score"] for entry in answer["results"]}
    for i, out in enumerate(golden["out"]):
        assert scores[i] == pytest.approx(1 / (1 + math.exp(-out)), abs=3e-3)
    found = [entry["relevance_score"] for entry in answer["results"]]
    assert found == sorted(found, reverse=True)
    assert all(entry["document"]["text"] == TEXTS[entry["index"]] for entry in answer["results"])
    few = server.post("/rerank", query=embed_cases.QUERY, documents=[{"text": text} for text in TEXTS], top_n=2).json
    assert [entry["index"] for entry in few["results"]] == [entry["index"] for entry in answer["results"][:2]]


@pytest.mark.parametrize(
    ("path", "fields", "status", "said"),
    [
        ("/v1/embeddings", {}, 400, "'input': expected a string, token ids, or a list of either"),
        ("/v1/embeddings", {"input": []}, 400, "'input': found 0 texts, expected 1 to 4096"),
        ("/v1/embeddings", {"input": ["x", 5]}, 400, "'input', number 2: expected a string or token ids"),
        ("/v1/embeddings", {"input": ["x", []]}, 400, "'input', number 2: expected a string or token ids"),
        ("/v1/embeddings", {"input": [5, 1e9]}, 400, "token ids from 0 to"),
        (
            "/v1/embeddings",
            {"input": "x", "dimensions": 8},
            400,
            "dimensions: found 8, and vectors of 60 alone are what the model's files say that it was trained for",
        ),
        ("/v1/embeddings", {"input": "x", "encoding_format": "hex"}, 400, "'encoding_format': found 'hex'"),
        ("/v1/embeddings", {"input": "the fox " * 200}, 400, "the prompt has 401 tokens"),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}, 501, "/v1/rerank is not offered: the model makes vectors"),
        ("/v1/completions", {"prompt": "x"}, 501, "/v1/completions is not offered: the model reads whole texts"),
    ],
)
def test_refused(vectors, path, fields, status, said):
    answer = vectors[0].post(path, **fields)
    assert answer.status == status and said in answer.json["error"]["message"], answer.body


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"documents": ["y"]}, 400, "'query': expected a string"),
        ({"query": "x"}, 400, "'documents': expected a list of strings"),
        ({"query": "x", "documents": []}, 400, "'documents': found 0 texts"),
        ({"query": "x", "documents": ["y", 3]}, 400, "'documents', number 2: expected a string, or an object"),
        ({"query": "x", "documents": ["y"], "top_n": 0}, 400, "'top_n': expected an integer from 1"),
        ({"query": "the fox " * 60, "documents": ["the fox " * 60]}, 400, "the text has 243 tokens"),
    ],
)
def test_refused_rankings(ranks, fields, status, said):
    answer = ranks[0].post("/v1/rerank", **fields)
    assert answer.status == status and said in answer.error, answer.body


def test_a_model_that_generates(server):
    for path, said in (
        ("/v1/embeddings", "was not trained to make embeddings"),
        ("/v1/rerank", "its files do not say that it compares two (modules.json with LogitScore"),
    ):
        answer = server.post(path, input="x")
        assert answer.status == 501 and f"{path} is not offered" in answer.error and said in answer.error


@pytest.fixture(scope="module")
def patient(start, tmp_path_factory):
    """Reads long texts: one of them takes tenths of a second."""
    folder = tmp_path_factory.mktemp("patient")
    case = dataclasses.replace(
        embed_cases.make_cases()["bert-mean"], config=embed_cases.bert(max_position_embeddings=4096)
    )
    model = convert_directory(embed_cases.write(case, folder / "long"), folder / "long.bin")
    (folder / "slots").mkdir()
    return lambda: start("--set", f"serve.slot_dir={folder / 'slots'}", "--set", "serve.drain=1", model=model)


LONG = ["the fox " * 2000] * 60


def begin(server):
    """Asks for so many vectors that nobody waits for them; the connection, once they are being made."""
    connection = server.connect()
    connection.request("POST", "/v1/embeddings", json.dumps({"input": LONG}))
    server.wait_until(server.busy)
    return connection


def test_who_leaves_is_not_worked_for(patient):
    server = patient()
    began = time.monotonic()
    assert server.post("/v1/embeddings", input=LONG[0]).status == 200
    one = time.monotonic() - began
    for _ in range(3):
        connection = begin(server)
        left = time.monotonic()
        connection.close()
        server.wait_until(lambda: not server.busy())
        assert time.monotonic() - left < 20 * one + 1
        assert server.post("/v1/embeddings", input="x").status == 200  # which is not cancelled, too


def test_a_slot_that_makes_vectors_is_at_work(patient):
    server = patient()
    connection = begin(server)
    assert server.get("/slots").json[0]["state"] == "reading"
    answer = server.ask("POST", "/slots/0?action=save", json.dumps({"filename": "x"}))
    assert answer.status == 503 and "slot 0 is at work" in answer.error
    connection.close()
    server.wait_until(lambda: not server.busy())
    assert server.ask("POST", "/slots/0?action=save", json.dumps({"filename": "x"})).status == 200


def test_the_end_does_not_wait_for_vectors(patient):
    server = patient()
    connection = begin(server)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    answer = connection.getresponse()
    assert answer.status == 503 and b"shutting down" in answer.read()
    assert server.process.wait(HANG) == 0 and time.monotonic() - began < 10


def test_refused_before_any_is_computed(patient):
    """By the last of many texts, in less time than one of the others takes."""
    server = patient()
    began = time.monotonic()
    assert server.post("/v1/embeddings", input=LONG[0]).status == 200
    one = time.monotonic() - began
    for last, said in (("the fox " * 3000, "has 6001 tokens"), (5, "number 61: expected"), ([], "number 61: expected")):
        began = time.monotonic()
        answer = server.post("/v1/embeddings", input=[*LONG, last])
        assert answer.status == 400 and said in answer.json["error"]["message"]
        assert time.monotonic() - began < 20 * one


@pytest.mark.parametrize("end", [True, False])
def test_a_model_that_also_generates(start, tmp_path, end):
    """Its vectors have a session of their own."""
    model = convert_directory(sentence_model(tmp_path / "sentences", "lasttoken", end), tmp_path / "model.bin")
    server = start("--parallel", 2, model=model)
    assert "3 sessions of" in server.lines[0] and "one for vectors" in server.lines[0]
    text = server.text("Once upon", seed=1)
    vector = server.post("/v1/embeddings", input="Once upon").json["data"][0]["embedding"]
    assert server.text("Once upon", seed=1) == text
    assert server.post("/v1/embeddings", input=["a fox", "Once upon"]).json["data"][1]["embedding"] == pytest.approx(
        vector, abs=1e-3
    )
