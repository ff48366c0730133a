"""The tables of what gpu_check.py found."""

from __future__ import annotations

import random_model

ATTENTION_LAYERS = 4  # of the models that are little but attention
LAYER_KERNELS = ("qkv", "rope-append", "o", "gate-up", "down")  # and attention


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def percent(fraction):
    return f"{100 * fraction:.1f} %"


def gap(found, row):
    """The part of a decode step that its kernels, timed alone, do not account for. Empty where not all were timed."""
    if not row["n_gen"] or row["how"]:
        return ""
    of_model = [one for one in found.get("kernels", []) if one["model"] == f"{row['preset']} {row['dtype']}"]
    seconds = {(one["kernel"], one["length"]): one["seconds"] for one in of_model if one["phase"] == "decode"}
    needed = [(name, 1) for name in (*LAYER_KERNELS, "classifier")] + [("attention", row["n_depth"])]
    if not all(key in seconds for key in needed):
        return ""
    layers = random_model.normalised_config(row["preset"])["n_layers"]
    in_layer = sum(seconds[name, 1] for name in LAYER_KERNELS) + seconds["attention", row["n_depth"]]
    step = row["avg_ns"] / 1e9 / row["n_gen"]
    return percent(1 - (in_layer * layers + seconds["classifier", 1]) / step)


def model_row(found, row):
    test = f"decode at {row['n_depth']:,}" if row["n_gen"] else f"prefill of {row['n_prompt']:,}"
    return (
        f"{row['preset']} {row['dtype']}",
        f"{test}, {row['how']}" if row["how"] else test,
        f"{row['avg_ts']:.1f} ± {row['stddev_ts']:.1f}",
        f"{row['gb_per_s']:.0f}",
        f"{row['gop_per_s']:.0f}",
        percent(row["fraction_of_limit"]),
        gap(found, row),
    )


def kernel_row(row):
    return (
        row["model"],
        row["phase"],
        row["kernel"],
        f"{row['length']:,}",
        f"{1e6 * row['seconds']:.1f}",
        f"{row['bytes'] / 1e6:.2f}",
        f"{row['gb_per_s']:.0f}",
        percent(row["of_read"]),
        f"{row['gop_per_s']:.0f}",
        percent(row["of_matrix"]),
    )


def ladder_row(row):
    return (
        f"{row['ladder']}, {row['model']}",
        row["step"],
        f"{row['length']:,}",
        f"{1e6 * row['seconds']:.1f}",
        f"{row['bytes'] / 1e6:.2f}",
        f"{row['gb_per_s']:.0f}",
        percent(row["of_read"]),
        f"{row['gain']:.2f}",
        f"{row['error']:.1e}",
    )


def long_rows(found):
    """Rows for models that were measured in several ways: a token's time at a depth, attention's in a layer, and how
    many times faster than dense attention that is."""
    rows = [row for row in found["models"] if row["how"] and row["n_gen"] and row["preset"].endswith("KV heads")]
    seconds = {(row["preset"], row["how"], row["n_depth"]): row["avg_ns"] / 1e9 / row["n_gen"] for row in rows}
    for (model, how, depth), token in seconds.items():
        rest, dense = seconds.get((model, how, 0)), seconds.get((model, "dense", depth))
        dense_rest = seconds.get((model, "dense", 0))
        if depth == 0 or None in (rest, dense, dense_rest):
            continue
        layer, dense_layer = (token - rest) / ATTENTION_LAYERS, (dense - dense_rest) / ATTENTION_LAYERS
        times = f"{dense_layer / layer:.2f}" if layer > 0 else ""
        yield model, how, f"{depth:,}", f"{1e6 * token:.1f}", f"{1e6 * layer:.1f}", times


def head_lines(found):
    machine = found.get("machine", {})
    gpu = machine.get("gpu", {})
    if found["emulated"]:
        where = "the emulator, on the CPU: its times mean nothing"
    else:
        where = f"{gpu.get('name', 'no GPU')}, driver {gpu.get('driver_version', 'none')}"
    yield f"{where}; {machine.get('date')}, commit {machine.get('commit')}, nvcc {machine.get('nvcc')}.\n"
    if "limits" in found:
        yield "Limits, measured: " + ", ".join(f"{key} {value:,.0f}" for key, value in found["limits"].items()) + ".\n"


def speed_tables(found):
    if found.get("models"):
        head = ["model", "test", "tok/s", "GB/s", "GOP/s", "of limit", "step not in kernels"]
        yield table(head, [model_row(found, row) for row in found["models"]])
    long = list(long_rows(found)) if found.get("models") else []
    if long:
        yield table(["attention", "way", "depth", "µs a token", "µs a layer, beyond depth 0", "times dense"], long)
    if "start" in found:
        times = ", ".join(f"{s:.2f}" for s in found["start"]["seconds"])
        yield f"From process start to first token of {found['start']['model']}: {times} s.\n"
    if found.get("kernels"):
        head = ["model", "phase", "kernel", "length", "µs", "MB", "GB/s", "of read", "GOP/s", "of matrix"]
        yield table(head, map(kernel_row, found["kernels"]))
    if found.get("ladders"):
        head = ["ladder", "step", "length", "µs", "MB", "GB/s", "of read", "gain", "error"]
        yield table(head, map(ladder_row, found["ladders"]))


def test_tables(found):
    yield table(
        ["step", "result", "seconds"], [(s["name"], s["result"], f"{s['seconds']:.1f}") for s in found["steps"]]
    )
    for title, key in (("refused", "refused"), ("compute-sanitizer", "sanitizer")):
        if found.get(key):
            yield table([title, "result"], found[key].items())
    tests = dict(found.get("kernel_tests", {}))
    if "model_tests" in found:
        tests["test_devices.py, test_sessions.py"] = found["model_tests"]
    if tests:
        rows = [(name, one["passed"], one["failed"], one.get("skipped", "")) for name, one in sorted(tests.items())]
        yield table(["tests", "passed", "failed", "skipped"], rows)


def markdown(found):
    return "\n".join(["# gpu-check\n", *head_lines(found), *test_tables(found), *speed_tables(found)])
