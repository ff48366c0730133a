"""Sessions that clients keep in files: llama.cpp's /slots/0?action=save, restore and erase; and a folder of two servers."""

from __future__ import annotations

import contextlib
import json
import subprocess

import pytest
from harness import HANG

PROMPT = "Once upon a time there was a girl who lived in a wood, and"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "slots"


@pytest.fixture
def keeper(start, folder):
    folder.mkdir()
    return start("--parallel", 2, "--set", f"serve.slot_dir={folder}", "--set", "serve.cache_ram=0")


def act(server, slot, action, **fields):
    return server.ask("POST", f"/slots/{slot}?action={action}", json.dumps(fields) if fields else None)


def cached(server, slot, prompt=PROMPT):
    answer = server.complete(prompt, id_slot=slot, max_tokens=4, temperature=0)
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["text"]


def test_a_session_is_saved_and_restored(keeper, folder):
    first = cached(keeper, 1)
    assert first[0] == 0 and cached(keeper, 0, "Something else")[0] == 0
    saved = act(keeper, 1, "save", filename="one.bin").json
    assert saved["id_slot"] == 1 and saved["filename"] == "one.bin" and saved["timings"]["save_ms"] > 0
    assert saved["n_saved"] == keeper.get("/slots").json[1]["n_tokens"] > 10
    assert saved["n_written"] == (folder / "one.bin").stat().st_size
    restored = act(keeper, 0, "restore", filename="one.bin").json
    assert restored["n_restored"] == saved["n_saved"] and restored["n_read"] == saved["n_written"]
    assert restored["id_slot"] == 0 and restored["timings"]["restore_ms"] > 0
    again = cached(keeper, 0)
    assert again[0] > 10 and again[1] == first[1]
    erased = act(keeper, 0, "erase")
    assert erased.status == 200 and erased.json == {"id_slot": 0, "n_erased": saved["n_saved"]}
    assert cached(keeper, 0) == first
    assert act(keeper, 1, "save", filename="one.bin").status == 200  # in the place of the first


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "/etc/x", "a\\b", ".hidden", "a\nb", "x" * 201, None, 5]
)
def test_names_that_lead_elsewhere(keeper, folder, name):
    for action in ("save", "restore"):
        answer = act(keeper, 0, action, filename=name)
        assert answer.status == 400 and "'filename': expected" in answer.error
    assert not list(folder.iterdir())


def test_what_is_refused(keeper, server, folder):
    assert act(keeper, 2, "save", filename="x").status == 404
    assert "expected a slot from 0 to 1, found '2'" in act(keeper, 2, "erase").error
    assert (
        act(keeper, "x", "erase").status
        == act(keeper, "-1", "erase").status
        == act(keeper, "0/1", "erase").status
        == 404
    )
    assert "expected ?action=save, restore or erase, found 'move'" in act(keeper, 0, "move").error
    assert "found ''" in keeper.ask("POST", "/slots/0").error
    assert act(keeper, 0, "restore", filename="none.bin").status == 404
    (folder / "other.bin").write_bytes(b"of somebody else" * 100)
    for action in ("save", "restore"):
        answer = act(keeper, 0, action, filename="other.bin")
        assert 400 <= answer.status < 500, answer.body
    assert (folder / "other.bin").read_bytes() == b"of somebody else" * 100
    answer = act(server, 0, "save", filename="x")
    assert answer.status == 501 and "--set serve.slot_dir=DIR" in answer.error
    assert act(server, 0, "erase").status == 200
    assert "id_slot" in keeper.post("/v1/completions", prompt="x", id_slot=2).error


def test_a_session_at_work(keeper):
    with contextlib.closing(keeper.connect()) as connection:
        body = json.dumps({"prompt": PROMPT, "id_slot": 1, "max_tokens": 1900, "ignore_eos": True, "stream": True})
        connection.request("POST", "/v1/completions", body)
        keeper.wait_until(lambda: keeper.get("/slots").json[1]["is_processing"])
        answer = act(keeper, 1, "save", filename="x.bin")
        assert answer.status == 503 and "slot 1 is at work" in answer.error
        assert act(keeper, 0, "save", filename="x.bin").status == 200
        assert cached(keeper, 0)[0] == 0  # the other one is free


def test_two_servers_on_one_folder(start, yalm, fable, tmp_path):
    options = ("--parallel", 1, "--set", f"serve.cache_dir={tmp_path}")
    long = " ".join([PROMPT] * 4)
    one, two = start(*options), start(*options)
    assert not any("another server keeps" in line for line in one.lines)
    assert any("another server keeps what it reads there" in line for line in two.lines)
    two.complete(long, max_tokens=2)
    one.complete(long, max_tokens=2)
    assert one.stop() == 0 and two.stop() == 0  # the first one has ended before
    assert [file.suffix for file in tmp_path.iterdir()] == [".pages"]
    three = start(*options)
    assert three.complete(long, max_tokens=2)["usage"]["prompt_tokens_details"]["cached_tokens"] > 16
    command = [yalm, fable, "-m", "serve", "--port", "0", *options]
    four = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)
    lines = iter(four.stderr)
    assert any(line.startswith("listening on") for line in lines)
    four.terminate()
    assert four.wait(HANG) == 1 and any("is not kept, for another one keeps its own" in line for line in lines)
    assert three.stop() == 0
