"""Runs one language model, fast, on this machine.

from yalm import Model

model = Model("qwen.gguf")  # or a directory from Hugging Face: converted once, into the cache of the program yalm
for text in model.generate("Once upon a time", max_tokens=60):
    print(text, end="", flush=True)
for text in model.chat([{"role": "user", "content": "Why is the sky blue?"}]):
    print(text, end="", flush=True)
scores = model.logits(model.tokenize("Once upon a"))  # a numpy array, one number for each token that may come next
"""

import contextlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from ._library import HERE, NULL, Error, call, ffi, library, taken

__all__ = ["Error", "Model", "program", "version"]
PIECE = 256  # tokens whose logits are kept at a time
STOPS = ("", "end", "grammar", "stop", "limit", "context", "caller")  # of yalm_stop


def version():
    """Of the library, with its commit, its compiler, and what it can compute by."""
    return ffi.string(library.yalm_version()).decode()


def program():
    """Path of the program yalm: the package's own, or what PATH has."""
    own = HERE / "bin/yalm"
    found = str(own) if own.exists() else shutil.which("yalm")
    if not found:
        raise Error("the program yalm, which converts models, is not on PATH")
    return found


def _converted(path, options):
    """The file to open for a model: itself, or its copy in the cache, which the program makes where it is missing."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read(4) == b"YALM" and not options:
            return os.fspath(path)
    words = [program(), os.fspath(path), "-m", "info", "-o", "json"]
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            words += [f"--{name.replace('_', '-')}" + ("" if one is True else f"={one}")] if one is not False else []
    environment = {**os.environ, "YALM_PYTHON": os.environ.get("YALM_PYTHON") or sys.executable}
    said = ""
    with tempfile.TemporaryFile() as out:
        with subprocess.Popen(words, stdout=out, stderr=-1, env=environment, encoding="utf-8", errors="replace") as run:
            for line in run.stderr:
                if line.startswith("yalm: "):
                    said = line[6:].strip()
                else:
                    sys.stderr.write(line)
        if run.returncode:
            raise Error(said or f"{words[0]} ended with {run.returncode}", run.returncode)
        out.seek(0)
        return json.load(out)["file"]


class Model:
    """A model, and a text that goes on: what a prompt has in common with what was read before is not read again.

    `device`: auto, cpu or cuda; `context`: tokens to look back on (0: chosen); `threads`: 0 is one for each core. Other names
    are options of the program for a model that is converted: dtype="q8", keep=["*.down=fp16"], lora="DIR".
    Calls from several threads take turns.
    """

    def __init__(self, path, *, device="auto", context=0, threads=0, **conversion):
        self._model = self._session = NULL
        self._lock = threading.Lock()
        self._model = call(library.yalm_model_open, os.fsencode(_converted(Path(path), conversion)), NULL)
        options = ffi.new("yalm_session_options *", library.yalm_session_defaults())
        options.device = name = ffi.new("char[]", device.encode())
        options.context, options.n_threads = context, threads
        self._session = call(library.yalm_session_open, self._model, options)
        del name  # needed until here
        facts = library.yalm_model_facts(self._model)
        self.name, self.architecture, self.weights = (
            ffi.string(text).decode() for text in (facts.name, facts.architecture, facts.weight_dtype)
        )
        self.vocab_size, self.context = facts.vocab_size, library.yalm_session_facts(self._session).context
        self.stopped_by = ""  # why the last text ended: end, stop, limit, context, grammar or caller

    def close(self):
        """Gives back what the model takes; nothing else can be called then."""
        with self._lock:
            library.yalm_session_close(self._session)
            library.yalm_model_close(self._model)
            self._session = self._model = NULL

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_lock", None):
            self.close()

    def tokenize(self, text, *, bos=True, special=False):
        """Ids of a text. `special`: the names of special tokens in it are these."""
        data, ids, n = text if isinstance(text, bytes) else text.encode(), ffi.new("int32_t **"), ffi.new("size_t *")
        flags = library.YALM_TOKENIZE_BOS * bos | library.YALM_TOKENIZE_SPECIAL * special
        call(library.yalm_tokenize, self._open(), data, len(data), flags, ids, n)
        return taken(ids, n, "int32_t")

    def detokenize(self, tokens):
        """The text of ids; special tokens add nothing."""
        stream, out, text = ffi.new("yalm_stream *"), ffi.new("char[]", library.YALM_MAX_PIECE + 8), b""
        for token in tokens:
            n = library.yalm_stream_token(self._open(), stream, token, False, out)
            text += ffi.buffer(out, n)[:]
        n = library.yalm_stream_end(stream, out)
        return (text + ffi.buffer(out, n)[:]).decode("utf-8", "replace")

    def generate(self, prompt, *, max_tokens=-1, stop=(), grammar=None, seed=None, **sampling):
        """Goes on with a text, or with ids: an iterator over what is new. -1 token: until the model ends the text.

        `stop`: strings that end it; `grammar`: GBNF; `sampling`: temperature, top_k, top_p, min_p, repeat_penalty and others
        of yalm_sampling. A greedy text has temperature=0; the same seed gives the same text.
        """
        tokens = self.tokenize(prompt) if isinstance(prompt, (str, bytes)) else list(prompt)
        return self._texts(tokens, False, max_tokens, stop, grammar, seed, sampling)

    def chat(self, messages, *, max_tokens=-1, stop=(), grammar=None, seed=None, template=None, **sampling):
        """The answer to messages, [{"role": "user", "content": "…"}, …], by the model's chat template: as generate() does.

        A model's reasoning is left out. `template`: further variables of the chat template.
        """
        variables = {"messages": list(messages), "add_generation_prompt": True, **(template or {})}
        data, text, n = json.dumps(variables).encode(), ffi.new("char **"), ffi.new("size_t *")
        call(library.yalm_chat_render, self._open(), data, len(data), text, n)
        tokens = self.tokenize(taken(text, n), bos=False, special=True)
        return self._texts(tokens, True, max_tokens, stop, grammar, seed, sampling)

    def logits(self, tokens, *, every=False):
        """Scores of what follows the ids, as float32: (vocab_size), or with `every` (len(tokens), vocab_size)."""
        import numpy

        ids, rows, start = ffi.new("int32_t[]", list(tokens)), [], 0
        piece = PIECE if every else max(len(ids), 1)
        with self._lock:
            self._open()
            if not every:  # what was read before stays
                common = min(library.yalm_session_common(self._session, ids, len(ids)), piece - 1)
                start = library.yalm_rollback_point(self._session, common)
            call(library.yalm_rollback, self._session, start)
            for at in range(start, max(len(ids), 1), piece):
                n = min(piece, len(ids) - at)
                which = library.YALM_LOGITS_ALL if every else library.YALM_LOGITS_LAST
                call(library.yalm_eval, self._session, ids + at, n, which)
                for i in range(n if every else 1):
                    row = ffi.buffer(library.yalm_logits(self._session, i), 4 * self.vocab_size)
                    rows.append(
                        numpy.frombuffer(row, "float32").copy()
                    )  # the library's own is good until the next call
        return numpy.stack(rows) if every else rows[0]

    def _open(self):
        if not self._model:
            raise Error("the model is closed", 2)
        return self._model

    def _texts(self, tokens, parts, max_tokens, stop, grammar, seed, sampling):
        """Checks the arguments at once; the iterator then has the library generate in a thread of its own."""
        drawing = ffi.new("yalm_sampling *", library.yalm_sampling_defaults())
        for name, value in sampling.items():
            if name not in dir(drawing) or name in ("size", "biases", "n_biases", "allowed"):
                raise TypeError(f"unknown argument '{name}': temperature, top_k and others of yalm_sampling are known")
            setattr(drawing, name, value)
        call(library.yalm_sampling_check, self._open(), drawing)
        stops = [ffi.new("char[]", text.encode()) for text in ([stop] if isinstance(stop, str) else stop)]
        how = ffi.new("yalm_generation *", library.yalm_generation_defaults())
        how.sampling, how.parts, how.max_tokens = drawing, parts, max_tokens
        how.stops, how.n_stops = (array := ffi.new("char *[]", stops)), len(stops)
        how.grammar = rules = ffi.new("char[]", grammar.encode()) if grammar else NULL
        needed = drawing, stops, array, rules  # as long as `how` is
        seed = random.getrandbits(63) if seed is None else seed
        return self._stream(ffi.new("int32_t[]", tokens), how, seed, needed)

    def _stream(self, ids, how, seed, needed):
        texts, left = queue.SimpleQueue(), threading.Event()

        @ffi.callback("bool(void *, const yalm_event *)")
        def take(_, event):
            if event.kind == library.YALM_EVENT_TEXT:
                texts.put(ffi.buffer(event.text, event.length)[:].decode("utf-8", "replace"))
            return not left.is_set()

        def work():
            result = ffi.new("yalm_generated *")
            try:
                with self._lock:
                    self._open()
                    library.yalm_seed(self._session, seed)
                    call(library.yalm_generate, self._session, ids, len(ids), how, result)
                    self.stopped_by = STOPS[result.why]
                texts.put(None)
            except Error as failed:
                texts.put(failed)

        how.take = take
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        try:
            while isinstance(text := texts.get(), str):
                yield text
            if text:
                raise text
        finally:
            left.set()
            worker.join()
