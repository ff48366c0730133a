#!/usr/bin/env python3
"""How fast attention over long contexts is, by each method, beside what its traffic allows.

usage: attention_speed.py [--smoke] [--shapes mistral-7b-v0.2,llama-2-7b] [--depths 4096,…] [--methods dense,…]
       [--end-to-end SHAPE] [--spread X] …

Attention's time is what `-m throughput` says of it: all of a layer but the products with weights. Models have two
layers of the real shape, caches are filled at random. At each depth the methods take turns, a process each. Theory is
the traffic alone: the bytes of the cache that dense attention reads over those that the method reads. --end-to-end
times a whole model in q4 besides. Prints markdown; writes JSON and a plot for each shape as SVG: speed-up against
length, theory dashed. 4k to 128k take about 10 minutes and 6 GB of memory. --rows FILE keeps what has been measured
after every run. A later call with the same file goes on where this one ended. The layers' norms are a quarter, not
one. With random weights a token's own key would otherwise have all of the second layer's attention. Every other
weight would be 0, and the selected rows the oldest, one after another. So attention is nearly even, which concerns
--set nomad.skip alone: --spread makes it less so.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import plot
from measure import machine, result_name, stop_politely, throughput

from models import ROOT, BenchError, cache_bytes, check_room, make_models, model_bytes

METHODS = {
    "dense": [],
    "sparq": ["--attention", "sparq", "--attention-ratio", "1/8"],
    "sparq 1/2": ["--attention", "sparq", "--attention-ratio", "1/2"],  # whose quality is nearest to the hybrid's
    "nomad": ["--attention", "nomad"],
    "nomad int8": ["--attention", "nomad", "--kv", "int8"],
    "nomad skip": ["--attention", "nomad", "--set", "nomad.skip=0.6"],
    "nomad int8 skip": ["--attention", "nomad", "--kv", "int8", "--set", "nomad.skip=0.6"],
    "hybrid": ["--attention", "hybrid"],
}
LAYERS = 2


def calibrate(yalm, model, folder, tokens):
    """Codebooks for random weights, learned from random ids: they only have to be there."""
    rnd = random.Random(1)
    ids = folder / "ids"
    ids.write_text(" ".join(str(rnd.randrange(3, 500)) for _ in range(tokens)), encoding="ascii")
    out = folder / (model.stem + ".nomad")
    command = [yalm, model, "-m", "calibrate", "--tokens", ids, "--set", f"calibrate.samples={tokens}", "-o", out, "-q"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(done.stderr.strip().splitlines()[-1])
    return out


def needs_codes(method):
    return method.split()[0] in ("nomad", "hybrid")


def multiply_scales(file, tensor, factor):
    """Multiplies the fp16 scales of a tensor in q4 or q8: one for 32 weights, its last bytes."""
    count = math.prod(tensor["shape"]) // 32
    offset = tensor["offset"] + tensor["length"] - 2 * count
    file.seek(offset)
    scales = np.frombuffer(file.read(2 * count), "<f2").astype(np.float32) * factor
    if np.abs(scales).max() > np.finfo(np.float16).max:
        raise BenchError(f"--spread: {tensor['name']}'s scales become {np.abs(scales).max():g}, more than fp16 holds")
    file.seek(offset)
    file.write(scales.astype("<f2").tobytes())


def calm(model, folder, spread=1):
    """A copy of the model whose norms before attention are 1/4, and whose scores are `spread` times as far apart.
    (Nothing but -m info and the like looks at a tensor's checksum.)"""
    out = Path(shutil.copy(model, folder))
    with out.open("r+b") as file:
        offset, length = struct.unpack_from("<24xQQ", file.read(64))
        file.seek(offset)
        for tensor in json.loads(file.read(length))["tensors"]:
            if tensor["name"].endswith("attention_norm"):
                file.seek(tensor["offset"])
                file.write(struct.pack("<f", 0.25) * (tensor["length"] // 4))
            if spread != 1 and tensor["name"].endswith(".q"):
                multiply_scales(file, tensor, spread)
    return out


class Rows:
    """What has been measured, by run; in a file, where there is one."""

    def __init__(self, path):
        self.path = path
        self.rows = json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else {}

    def get(self, name, measure):
        if name not in self.rows:
            print(f"bench: {name}", file=sys.stderr)
            self.rows[name] = measure()
            if self.path:
                temporary = self.path.with_name(f".{self.path.name}.tmp")  # an interrupt leaves the last whole file
                temporary.write_text(json.dumps(self.rows), encoding="utf-8")
                temporary.rename(self.path)
        return self.rows[name]


def run_all(yalm, model, depths, plan, label, book, kept):
    """{(method, depth): rows of all rounds}; at each depth the methods take turns."""
    found = {}
    for depth in depths:
        for i in range(plan["rounds"]):
            for method in plan["methods"]:
                name = f"{label}, {depth}, {method}, {plan['generate']} tokens x {plan['repetitions']}, round {i + 1}"
                options = METHODS[method] + (["--codebooks", str(book)] if needs_codes(method) else [])
                counts = {"generate": plan["generate"], "repetitions": plan["repetitions"]}
                measure = functools.partial(throughput, yalm, model, depth=depth, options=options, **counts)
                found.setdefault((method, depth), []).extend(kept.get(name, measure))
    return found


def sample_median(rows, key):
    return statistics.median(sample for row in rows for sample in row[key])


def record(section, shape, method, depth, seconds, count, dense, limit):
    """dense: its seconds and bytes at this depth."""
    return {
        "section": section,
        "shape": shape,
        "method": method,
        "depth": depth,
        "seconds": seconds,
        "bytes": count,
        "fraction": count / seconds / 1e9 / limit,
        "speedup": dense[0] / seconds,
        "theory": dense[1] / count,
    }


def attention_records(found, shape):
    """Records of one layer's attention."""
    records = []
    for (method, depth), rows in found.items():
        seconds = 1e-9 * sample_median(rows, "samples_attention_ns") / LAYERS
        dense = 1e-9 * sample_median(found["dense", depth], "samples_attention_ns") / LAYERS
        limit = statistics.median(row["limit_gb_per_s"] for row in rows)
        count = rows[0]["attention_bytes"] / LAYERS
        dense_count = found["dense", depth][0]["attention_bytes"] / LAYERS
        records.append(record("attention", shape, method, depth, seconds, count, (dense, dense_count), limit))
    return records


def whole_records(found, shape):
    def cost(rows):
        n = rows[0]["n_gen"]
        return 1e-9 * sample_median(rows, "samples_ns") / n, rows[0]["gb_per_s"] * rows[0]["avg_ns"] / n

    records = []
    for (method, depth), rows in found.items():
        limit = statistics.median(row["limit_gb_per_s"] for row in rows)
        records.append(record("end to end", shape, method, depth, *cost(rows), cost(found["dense", depth]), limit))
    return records


def markdown(records):
    lines = []
    titles = dict.fromkeys((r["section"], r["shape"]) for r in records)
    for section, shape in titles:
        what = "attention, a layer" if section == "attention" else "a token"
        head = ["depth", "method", what, "bytes", "of read bandwidth", "faster than dense", "theory", "of theory"]
        lines += [f"### {shape}, {section}", "", "| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
        for r in records:
            if (r["section"], r["shape"]) == (section, shape):
                cells = [f"{r['depth']:,}", r["method"], f"{1e3 * r['seconds']:.3f} ms", f"{r['bytes'] / 1e6:,.1f} MB"]
                cells += [f"{100 * r['fraction']:.0f} %", f"{r['speedup']:.2f}", f"{r['theory']:.2f}"]
                cells.append(f"{100 * r['speedup'] / r['theory']:.0f} %")
                lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def svg(records, shape):
    """Speed-up over dense attention against depth; theory dashed."""
    series, depths = {}, []
    for r in records:
        if r["section"] == "attention" and r["shape"] == shape and r["method"] in ("sparq", "nomad", "hybrid"):
            series.setdefault(r["method"], ([], False))[0].append((r["depth"], r["speedup"]))
            series.setdefault(r["method"] + ", theory", ([], True))[0].append((r["depth"], r["theory"]))
            depths.append(r["depth"])
    return plot.curves(f"Attention of {shape}", "positions in the cache", "times as fast as dense", series, depths)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a tiny model, once: whether all of this works")
    parser.add_argument("--shapes", default="mistral-7b-v0.2,llama-2-7b", help="none: an empty word")
    parser.add_argument("--depths", default="4096,16384,32768,65536,131072")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rounds", type=int, default=1, help="turns of the methods at each depth")
    parser.add_argument("--repetitions", type=int, default=5, help="in each turn, over the same cache")
    parser.add_argument("--generate", type=int, default=8, help="tokens in a repetition")
    parser.add_argument("--end-to-end", metavar="SHAPE", help="also this shape in q4, whole, at depth 16,384")
    parser.add_argument(
        "--spread",
        type=float,
        default=1,
        metavar="X",
        help="scores this many times as far apart; at 12 skipping takes as many rows as with the bundled model",
    )
    parser.add_argument("--keep", action="store_true", help="leave the models in the build folder; they are used again")
    parser.add_argument("--build", type=Path, default=ROOT / "build/bench")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="of what has been measured, to go on from; written after every run"
    )
    parser.add_argument("--yalm", type=Path, default=ROOT / "yalm")
    return parser, parser.parse_args()


def make_plan(parser, arguments):
    methods = arguments.methods.split(",")
    if unknown := [method for method in methods if method not in METHODS]:
        parser.error(f"--methods: found '{unknown[0]}', expected some of {', '.join(METHODS)}")
    plan = {
        "methods": ["dense", *(method for method in methods if method != "dense")],
        "shapes": ["tiny-gqa"] if arguments.smoke else [shape for shape in arguments.shapes.split(",") if shape],
        "depths": [1024, 2048] if arguments.smoke else [int(word) for word in arguments.depths.split(",")],
        "rounds": 1 if arguments.smoke else arguments.rounds,
        "repetitions": 2 if arguments.smoke else arguments.repetitions,
        "generate": 4 if arguments.smoke else arguments.generate,
    }
    return plan


def check_memory(shape, depth, layers=None):
    """Caches in fp16, and what the methods keep beside them: SparQ's copy in int8 is the largest."""
    check_room(ROOT, 0, int(1.4 * cache_bytes(shape, depth, layers)) + model_bytes(shape, "q4", layers))


def measure_all(plan, arguments, folder):
    records, kept = [], Rows(arguments.rows)
    spread = "" if arguments.spread == 1 else f", spread {arguments.spread:g}"
    for shape in plan["shapes"]:
        check_memory(shape, max(plan["depths"]), LAYERS)
        [model] = make_models(arguments.build, shape, ["q4"], LAYERS).values()
        model_calm = calm(model, folder, arguments.spread)
        book = calibrate(arguments.yalm, model_calm, folder, 512) if any(map(needs_codes, plan["methods"])) else None
        found = run_all(arguments.yalm, model_calm, plan["depths"], plan, shape + spread, book, kept)
        records += attention_records(found, shape)
        model_calm.unlink()
        if not arguments.keep:
            model.unlink()
    if shape := arguments.end_to_end:
        check_memory(shape, 16384)
        [model] = make_models(arguments.build, shape, ["q4"]).values()
        model_calm = calm(model, folder, arguments.spread)
        if not arguments.keep:
            model.unlink()
        book = calibrate(arguments.yalm, model_calm, folder, 256) if any(map(needs_codes, plan["methods"])) else None
        records += whole_records(
            run_all(arguments.yalm, model_calm, [16384], plan, shape + " whole" + spread, book, kept), shape
        )
    return records


def main():
    parser, arguments = parse_arguments()
    plan = make_plan(parser, arguments)
    stop_politely()
    facts = machine()
    arguments.build.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            records = measure_all(plan, arguments, Path(folder))
    except BenchError as error:
        sys.exit(f"attention_speed: {error}")
    except KeyboardInterrupt:
        return 130
    print(markdown(records))
    arguments.results.mkdir(parents=True, exist_ok=True)
    stem = arguments.results / ("attention-speed-" + result_name(facts))
    stem.with_suffix(".json").write_text(json.dumps({"machine": facts, "records": records}, indent=1), encoding="utf-8")
    for shape in plan["shapes"]:
        Path(f"{stem}-{shape}.svg").write_text(svg(records, shape), encoding="utf-8")
    print(f"wrote {stem}.json", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
