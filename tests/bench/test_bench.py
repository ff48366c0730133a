"""bench/run.py on tiny models: its tables, its JSON, its plots, and that it cleans up."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from harness import HANG, ROOT

SVG = "{http://www.w3.org/2000/svg}"


def run_bench(*options):
    command = [sys.executable, str(ROOT / "bench/run.py"), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


@pytest.fixture(scope="module")
def smoke(yalm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    done = run_bench("--smoke", "--dtypes", "fp16", "--yalm", yalm, "--build", folder / "models", "--results", folder)
    assert done.returncode == 0, done.stderr
    [results] = folder.glob("*.json")
    return folder, done.stdout, json.loads(results.read_text(encoding="utf-8")), done.stderr


def test_says_first_what_it_will_do(smoke):
    first = smoke[3].splitlines()[0]
    assert re.match(r"bench: times tiny-gqa in fp16, tiny-llama3rope by depth, .* About \d+ minutes", first)


def test_json_holds_every_section(smoke):
    results = smoke[2]
    records = results["records"]
    assert {record["section"] for record in records} == {"dtype", "prompt", "depth", "small", "busy"} or (
        results["machine"]["cores"] == 1
    )
    for record in records:
        assert record["lowest_tokens_per_s"] <= record["tokens_per_s"] <= record["best_tokens_per_s"]
        assert record["limit"] > 0 and record["fraction"] > 0 and 0 <= record["others"] <= 1
        assert (record["fraction_of_reads"] is None) == (record["n_gen"] == 0)
        assert record["n_gen"] == 0 or record["fraction_of_reads"] > 0
        assert len(record["rows"]) * len(record["rows"][0]["samples_ts"]) == record["n_samples"]


def test_amounts_are_those_of_the_shape(smoke):
    """tiny-llama3rope: 3 layers, 2 KV heads of 32, fp16; a token more in the cache is 768 bytes more to read."""
    depth = {r["n_depth"]: r for r in smoke[2]["records"] if r["section"] == "depth"}
    assert sorted(depth) == [0, 1024]
    more = depth[1024]["amount_per_token"] - depth[0]["amount_per_token"]
    assert more == pytest.approx(1024 * 3 * 2 * 2 * 32 * 2, rel=0.01)
    prefill = next(r for r in smoke[2]["records"] if r["case"] == "pp64")
    assert prefill["unit"] == "GOP/s"
    achieved = prefill["amount_per_token"] * prefill["tokens_per_s"]
    assert prefill["achieved"] == pytest.approx(1e-9 * achieved, rel=0.01)


def test_tables_are_printed(smoke):
    for title in ("By dtype", "By prompt length", "By depth", "In the caches"):
        assert f"### {title}" in smoke[1]
    assert "| tiny-gqa | fp16 | tg16 |" in smoke[1]


def test_plots_are_svg_with_a_mark_for_each_measurement(smoke):
    folder = smoke[0]
    plots = {path.stem.rpartition("-")[2]: ElementTree.parse(path).getroot() for path in folder.glob("*.svg")}
    assert sorted(plots) == ["depth", "dtypes", "prompt"]
    for root in plots.values():
        assert root.tag == SVG + "svg"
    assert len(plots["depth"].findall(SVG + "circle")) == 2
    assert len(plots["depth"].findall(SVG + "polyline")) == 2  # what was measured, and the theory
    assert len(plots["prompt"].findall(SVG + "circle")) == 2
    assert len(plots["dtypes"].findall(SVG + "rect")) == 1 + 2  # the page; decode and prefill


@pytest.mark.parametrize("ys", [(1, 2, 3), (-0.2, 0.1, 5), (-0.3, -0.2, -0.1), (0, -1, 0), (0, 0, 0)])
def test_marks_are_within_the_axes(monkeypatch, ys):
    monkeypatch.syspath_prepend(ROOT / "bench")
    import plot

    series = {"measured": (list(zip((1, 2, 4), ys)), False)}
    root = ElementTree.fromstring(plot.curves("title", "x", "y", series, (1, 2, 4)))
    heights = [float(mark.get("cy")) for mark in root.findall(SVG + "circle")]
    assert len(heights) == 3 and all(plot.TOP <= y <= plot.HEIGHT - plot.BOTTOM for y in heights)
    assert sorted(heights, reverse=True) == [y for _, y in sorted(zip(ys, heights))]
    assert "0" in [words.text for words in root.findall(SVG + "text")]


def test_models_are_removed(smoke):
    assert list((smoke[0] / "models").iterdir()) == []


def script(path, lines):
    path.write_text("#!/bin/sh\n" + lines)
    path.chmod(0o755)
    return path


def test_kernels_come_first_and_into_the_json(yalm, tmp_path):
    line = "attend int8 decode, 4 queries, d 64            12.5 GB/s    61.0 %  (rounds 46 to 210 %)"
    kernels = script(tmp_path / "kernels", f"echo 'avx2, 1 threads'\necho '{line}'\n")
    folders = ("--yalm", yalm, "--build", tmp_path / "b", "--results", tmp_path)
    done = run_bench("--smoke", "--dtypes", "fp16", "--depths", 0, "--kernels", kernels, *folders)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["avx2, 1 threads", line]
    [results] = tmp_path.glob("*.json")
    found = json.loads(results.read_text(encoding="utf-8"))["kernels"]
    expected = {"kernel": "attend int8 decode, 4 queries, d 64", "speed": 12.5, "unit": "GB/s"}
    assert found["records"] == [{**expected, "fraction": 0.61, "lowest": 0.46, "highest": 2.1}]


def test_an_interrupted_run_leaves_nothing(tmp_path):
    program = script(tmp_path / "yalm", "exec sleep 60\n")
    command = [sys.executable, str(ROOT / "bench/run.py"), "--smoke", "--dtypes", "fp16", "--yalm", str(program)]
    command += ["--build", str(tmp_path / "b"), "--results", str(tmp_path / "r")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "round 1" in line:  # the models are there, and a measurement is under way
                assert list((tmp_path / "b").glob("*.bin"))
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG) == 130
    assert list((tmp_path / "b").iterdir()) == [] and not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dtypes", "q17"], "found 'q17', expected some of fp32, fp16, bf16, bf12, fp8, q8, q6, q5, q4"),
        (["--depths", "1,x"], "found '1,x'"),
        (["--rounds", "0"], "found 0"),
        (["--shape", "llama-9"], "llama-9"),
    ],
)
def test_bad_options_are_refused(options, words):
    done = run_bench("--smoke", *options)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]


def test_a_program_that_fails_is_reported_in_one_line(tmp_path):
    failing = script(tmp_path / "yalm", "echo 'yalm: something is wrong' >&2\nexit 3\n")
    done = run_bench("--smoke", "--dtypes", "fp16", "--yalm", failing, "--build", tmp_path / "b", "--results", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "run.py: yalm: something is wrong"
    assert list((tmp_path / "b").iterdir()) == []


def test_attention_speed(yalm, tmp_path):
    command = [sys.executable, str(ROOT / "bench/attention_speed.py"), "--smoke", "--yalm", str(yalm)]
    command += ["--build", str(tmp_path / "models"), "--results", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    [results] = (tmp_path / "results").glob("*.json")
    theory = {
        (r["method"], r["depth"]): r["theory"] for r in json.loads(results.read_text(encoding="utf-8"))["records"]
    }
    for (method, _), value in theory.items():  # head_dim 32: codes of 16 bytes and values of 64 in place of 128
        assert value == {"dense": 1, "nomad": pytest.approx(1.6), "nomad skip": pytest.approx(1.6)}.get(method, value)
        assert value > 0.999  # sparq and hybrid are dense attention below the length at which they pay
    assert not list((tmp_path / "models").glob("*.bin"))


def test_attention_speed_goes_on_where_it_ended(yalm, tmp_path):
    kept = tmp_path / "rows.json"
    command = [
        sys.executable,
        str(ROOT / "bench/attention_speed.py"),
        "--smoke",
        "--methods",
        "dense,sparq",
        "--spread",
        "12",
    ]
    command += [
        "--yalm",
        str(yalm),
        "--rows",
        str(kept),
        "--build",
        str(tmp_path),
        "--results",
        str(tmp_path / "results"),
    ]

    def measured():
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == 0, done.stderr
        lines = [line.removeprefix("bench: ") for line in done.stderr.splitlines()]
        return [line for line in lines if line.endswith(", round 1")]

    rows = dict.fromkeys(measured())
    assert len(rows) == 4  # two methods at two depths
    assert all(row.startswith("tiny-gqa, spread 12, ") for row in rows)
    found = json.loads(kept.read_text(encoding="utf-8"))
    assert found.keys() == rows.keys()
    missing, changed, *_ = found
    del found[missing]
    for row in found[changed]:
        row["samples_attention_ns"] = [2e9 for _ in row["samples_attention_ns"]]
    kept.write_text(json.dumps(found), encoding="utf-8")
    assert measured() == [missing]
    assert json.loads(kept.read_text(encoding="utf-8")).keys() == rows.keys()
    results = max((tmp_path / "results").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    records = json.loads(results.read_text(encoding="utf-8"))["records"]
    slowest = max(records, key=lambda r: r["seconds"])
    assert slowest["seconds"] == pytest.approx(1)  # of one of two layers, as it was kept
    assert slowest["method"] in changed
    assert not list(tmp_path.glob(".*.tmp"))


def test_attention_quality(yalm, fable, tmp_path):
    command = [sys.executable, str(ROOT / "bench/attention_quality.py"), "--yalm", str(yalm), "--model", str(fable)]
    command += ["--results", str(tmp_path), "--contexts", "320", "--tokens", "60", "--keys", "320"]
    done = subprocess.run(
        [*command, "--also", "half=--attention hybrid --attention-ratio 1/2 --set hybrid.from=1"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [results] = tmp_path.glob("*.json")
    found = json.loads(results.read_text(encoding="utf-8"))
    records, keys = found["records"], found["keys"]
    methods = ["dense", "hybrid", "sparq", "nomad", "half"]
    assert [r["method"] for r in records] == [k["method"] for k in keys] == methods
    assert all(r["tokens"] == 82 for r in records)  # two windows
    dense, hybrid, *others = records
    assert hybrid["kl"] == 0 and hybrid["traffic"] == 1  # too short to pay
    for r in others:
        assert 0 < r["kl"] < 0.1 and 0.3 < r["traffic"] < 0.8
        assert r["ratio"] == pytest.approx(r["perplexity"] / dense["perplexity"], rel=1e-4)
        assert abs(r["ratio"] - 1) < 5 * r["ratio_error"] + 0.01
    assert all(keys[0]["found"][:5]) and len(keys[0]["found"]) == 10  # one alone, at five depths
    assert keys[1]["found"] == keys[0]["found"]
    assert "| heldout | 320 | half |" in done.stdout and "| 320 | hybrid |" in done.stdout
