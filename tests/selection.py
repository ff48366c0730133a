"""Which tests tests/run.py runs in which build, and what `make test` leaves to `make test-all`."""

THREADED_ROOMS = ("engine", "cpu")  # what runs on several threads, for ThreadSanitizer
THREADED_TESTS = "rollback or tiny-llama- or tiny-mixtral-"  # of the parity tests, likewise
# Of the server's, likewise.
SERVED_TESTS = "among_others or stalls or fair or leaves or queue or many_requests"
SERVED_TESTS += " or end_lets or end_waits or comes_at_the_end"
ARM64_TESTS = "tiny-llama- or tiny-mixtral-"  # of the parity tests, under QEMU, which takes ten times as long
NOT_IN_QEMU = ("arm64/model/test_huge_pages",)  # it passes on no advice about pages
CUDA_ROOM = "cuda"  # tested in builds of its own
# Its Python tests' emulated GPU is one core's: in parts that run at the same time, each below the limit.
CUDA_PARTS = (
    ("-fp32", "fp32-fp32"),
    ("-brief", "briefly and not fp32-fp32"),
    ("-same", "selections or perplexity or pass_keys"),
    ("-half", "not (fp32-fp32 or briefly or selections or perplexity or pass_keys)"),
)
CUDA_ASAN_TESTS = "tiny-mixtral-fp16"  # of its Python tests, under AddressSanitizer
# Python tests that run none of the C code, build it themselves, or time it; and those that have other builds.
UNSANITIZED = ("tools", "install", "packages", "bench", "docs", "real", "mpi", CUDA_ROOM)
# What `make test` leaves to `make test-all`. Rooms of the release build: timings of timings.
THOROUGH_ROOMS = ("bench",)
# Of the threads' builds it runs these programs: the team itself, and sessions that share one.
THREADED_PROGRAMS = ("cpu/test_team", "engine/test_session")
# Of the programs under AddressSanitizer it leaves out those that compare numbers for minutes, by kernels whose own tests are
# watched, and what measures the machine.
NUMBERS = ("engine/test_forward", "engine/test_methods", "engine/test_together", "cpu/test_sparq", "cpu/test_limits")
# Of the Python tests under AddressSanitizer, and of the emulated GPU's, it leaves out numbers (the release build's tests judge
# them), and what takes minutes.
NUMBERS_OF_CLI = (
    "perplexity or throughput or measures or quality or passkey or nomad or calibrate or activations or bf12"
)
NUMBERS_OF_CLI += " or killed_converter or longest_line or any_number_of_threads or test_memory"
NUMBERS_OF_SERVE = "keep_nobody_waiting"
BRIEFLY = {
    "asan/cli": f"not ({NUMBERS_OF_CLI})",
    "asan/parity": "not (bundled or scalar)",
    "asan/serve": f"not ({NUMBERS_OF_SERVE})",
    "asan/chat": "not 20000000",
    "asan/text": "not megabyte",
    "release/text": "not (megabyte and (mistral_nemo or tokenizer.model))",
    "emulated/cuda": "not (quality or measuring or ptxas)",
}
# What depends on rounding runs again by lesser instruction sets, where the machine has more: rooms of Python tests, in which
# build. (tests/cpu, tests/engine, tests/parity and tests/cuda/test_devices.py run each test by several instruction sets.)
FORCED = (
    ("avx2", "asan", ("serve", "cli")),
    ("scalar", "release", ("serve", "cli", "mpi")),
)
FORCED_IN_FULL = (("avx2", "release", ("mpi",)),)
# Of these rooms the scalar one, which takes ten times as long, has what depends on rounding: texts, logits and probabilities
# that are to be the same on different ways. It leaves out what takes minutes without vectors, and what names an instruction set
# itself.
ROUNDED = {
    "serve": "test_exact or test_reuse or test_speculate or test_completions or test_vectors or restored or among_others"
    " or text_is or probabilities",
    "cli": "test_completion or test_speculate or test_chat or test_grammar or test_measures or test_embed or test_ids_only",
}
SLOW = "throughput or passkey or 8_bit or document or memory or choices or system_prompt or how_much or context_holds"
SLOW += " or more_conversations or scoring_reads or perplexity_through or checkpoints or turns or activations or cache_types"
SLOW += " or sparq or windows or answers_are_the_same or (whatever_else_goes_on and not dense) or is_the_reference"
SLOW += " or longest_line or leaves or at_work or end_does_not_wait or refused or cannot_be_had or measures_take or it_reads"
# The release has these by the best one, and what the sanitizer leaves out; the rest of these rooms runs there. In
# chat and text nothing depends on rounding, and the sanitizer has all.
BESIDE_ASAN = {
    "serve": f"{ROUNDED['serve']} or test_stress or {NUMBERS_OF_SERVE}",
    "cli": f"{ROUNDED['cli']} or {NUMBERS_OF_CLI}",
    "chat": "20000000",
    "text": "megabyte",
}
WITH_ASAN = ("grammar", "speech")
# (A chat's texts come as a completion's do.)
FORCED_BRIEFLY = {
    ("scalar", room): f"({which.replace(' or test_chat', '')}) and not ({SLOW})" for room, which in ROUNDED.items()
}
# And `make test` of these what draws texts: guesses, states, vectors and measures are the engine's, by each set.
DRAWN = {
    ("scalar", "serve"): "test_exact or test_completions or among_others",
    ("scalar", "cli"): "test_completion or test_ids_only",
}
# Rooms of src/, and the jobs that test them: what is not here is tested by the room of tests/ that has its name.
ROOMS = {
    "cpu": ("*/cpu/*", "*/engine/*", "*/parity*"),
    "cpu/kernels": ("*/cpu/*_kernels", "*/cpu/*_attention", "*/engine/test_forward"),
    "cpu/long": (
        "*/cpu/test_select",
        "*/cpu/test_sparq",
        "*/cpu/test_nomad_kernels",
        "*/engine/test_*hybrid",
        "*/engine/test_nomad",
        "*/engine/test_code_runs",
        "*/engine/test_sparq_session",
    ),
    "cpu/machine": ("*/cpu/test_team*", "*/cpu/test_limits", "*/engine/test_session"),
    "cuda": ("emulated*/cuda*",),
    "recipe": ("*/recipe/*", "*/engine/*", "*/parity*"),
}
