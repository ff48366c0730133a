"""What bench/run.py times: shapes, dtypes, lengths, depths, and how often; what that takes."""

from __future__ import annotations

import sys

from models import BITS, SOURCE_BITS, cache_bytes, check_room, model_bytes, model_name, n_weights

# What a run times: shapes, dtypes, lengths, depths, and how often.
QUICK = {
    "shape": "tinyllama-1.1b",
    "depth_shape": "llama-3.2-1b",
    "dtypes": ["fp16", "bf16", "q8", "q4"],
    "depth_dtype": "fp16",
    "prompt": 512,
    "generate": 64,
    "prompts": [16, 64, 256, 1024],
    "depths": [0, 4096, 16384, 65536],
    "depth_generate": 16,
    "busy_shapes": ["fable-4m", "tinyllama-1.1b"],
    "rounds": 3,
}
FULL = {
    **QUICK,
    "dtypes": ["fp16", "bf16", "q8", "q4", "fp8", "fp32"],
    "generate": 128,
    "prompts": [1, 4, 16, 64, 256, 512, 1024, 2048],
    "depths": [0, 1024, 4096, 16384, 65536],
    "depth_generate": 32,
    "rounds": 7,
}
SMOKE = {
    **QUICK,
    "shape": "tiny-gqa",
    "depth_shape": "tiny-llama3rope",
    "prompt": 64,
    "generate": 16,
    "prompts": [16, 64],
    "depths": [0, 1024],
    "busy_shapes": ["fable-4m"],
    "rounds": 1,
}

# Of two cores of a server, to say beforehand how long a plan takes: bytes and operations a second, and bytes a second
# made as models.
READING, MULTIPLYING, MAKING = 30e9, 280e9, 70e6
STARTING = 3  # seconds of a process, most of them for the machine's limits
KERNELS = 60  # seconds


def state_needs(plan, folder):
    shape, deep = plan["shape"], plan["depth_shape"]
    files = sum(model_bytes(shape, dtype) for dtype in plan["dtypes"])
    deep_file = model_bytes(deep, plan["depth_dtype"])
    source = SOURCE_BITS // 8 * max(n_weights(shape), n_weights(deep))
    cache = cache_bytes(deep, max(plan["depths"]))
    largest = max(model_bytes(shape, dtype) for dtype in plan["dtypes"])
    check_room(folder, files + deep_file + source, max(largest, deep_file + cache) + (1 << 30))


def run_seconds(shape, dtype, prompts=(), generate=0, depth=0):
    """Seconds of one process: everything once to warm up (decode: 8 tokens) and once timed."""
    multiplied = 2 * n_weights(shape) * 2 * sum(prompts) / MULTIPLYING
    tokens = generate + 8 if generate else 0
    return STARTING + multiplied + tokens * (model_bytes(shape, dtype) + cache_bytes(shape, depth)) / READING


def making_seconds(plan, folder):
    """Seconds to make the models that are not there yet: a directory of each shape, then every file."""
    wanted = [(plan["shape"], dtype) for dtype in plan["dtypes"]] + [(plan["depth_shape"], plan["depth_dtype"])]
    missing = [pair for pair in wanted if not (folder / f"{model_name(pair[0])}-{pair[1]}.bin").exists()]
    made = sum(SOURCE_BITS // 8 * n_weights(shape) for shape in {shape for shape, _ in missing})
    return (made + sum(model_bytes(*pair) for pair in missing)) / MAKING


def measuring_seconds(plan):
    shape, dtypes = plan["shape"], plan["dtypes"]
    runs = [run_seconds(shape, dtype, [plan["prompt"]], plan["generate"]) for dtype in dtypes]
    runs.append(run_seconds(shape, dtypes[0], plan["prompts"]))
    runs += [4 * STARTING]  # the small model on one thread and on all; alone and beside a busy process
    runs += [
        run_seconds(shape, dtypes[0], generate=16) for name in plan["busy_shapes"] if name == shape for _ in range(2)
    ]
    deep = plan["depth_shape"], plan["depth_dtype"]
    runs += [run_seconds(*deep, generate=plan["depth_generate"], depth=depth) for depth in plan["depths"]]
    return plan["rounds"] * sum(runs)


def announce(plan, folder, kernels):
    """What will be done, in which order, and about how long it takes."""
    making, measuring = making_seconds(plan, folder), measuring_seconds(plan)
    parts = ["each kernel (1 minute)"] if kernels else []
    parts.append(
        f"{plan['shape']} in {', '.join(plan['dtypes'])}, {plan['depth_shape']} by depth, fable-4m in the caches"
    )
    total = making + measuring + (KERNELS if kernels else 0)
    print(
        f"bench: times {'; '.join(parts)}. About {total / 60:.0f} minutes on two cores of a server, "
        f"{making / 60:.0f} of them to make models of random weights. Tables come at the end; "
        f"nothing else should run meanwhile",
        file=sys.stderr,
    )


def make_plan(parser, arguments):
    plan = dict(FULL if arguments.full else SMOKE if arguments.smoke else QUICK, threads=arguments.threads)
    if arguments.dtypes:
        plan["dtypes"] = arguments.dtypes.split(",")
        plan["depth_dtype"] = plan["dtypes"][0]
        for dtype in plan["dtypes"]:
            if dtype not in BITS:
                parser.error(f"--dtypes: found '{dtype}', expected some of {', '.join(BITS)}")
    if arguments.depths:
        try:
            plan["depths"] = [int(word) for word in arguments.depths.split(",")]
        except ValueError:
            parser.error(f"--depths: found '{arguments.depths}', expected numbers")
    if arguments.shape:
        plan["busy_shapes"] = ["fable-4m", arguments.shape]
    for name in ("shape", "depth_shape", "rounds"):
        if getattr(arguments, name) is not None:
            plan[name] = getattr(arguments, name)
    if plan["rounds"] < 1:
        parser.error(f"--rounds: found {plan['rounds']}, expected at least 1")
    return plan
