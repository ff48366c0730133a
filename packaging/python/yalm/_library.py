"""libyalm by cffi: its functions and types are read from yalm.h, so that they cannot disagree with it."""

import os
import re
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
NAME = "libyalm.so.0.2"  # of the same version as the header
FROM_OUTSIDE = (
    r"//[^\n]*|^#(?!define YALM_\w+ \d+$)[^\n]*|YALM_API|^extern \"C\" \{|^\}$"  # what is no declaration of C's
)


class Error(RuntimeError):
    """What went wrong, in the library's one line. `status` is the exit code that the program would have."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


def load():
    """The library that YALM_LIBRARY names, that of the package, or that of the system; the header beside it."""
    own, header = HERE / "lib" / NAME, HERE / "include/yalm.h"
    name = os.environ.get("YALM_LIBRARY") or (str(own) if own.exists() else NAME)
    ffi = cffi.FFI()
    ffi.cdef(re.sub(FROM_OUTSIDE, "", header.read_text(encoding="utf-8"), flags=re.M) + "void free(void *);")
    try:
        library = ffi.dlopen(name)
        defaults = library.yalm_session_defaults(), library.yalm_sampling_defaults(), library.yalm_generation_defaults()
    except (OSError, AttributeError) as error:
        raise ImportError(f"yalm: {error}") from None
    if any(options.size != ffi.sizeof(options) for options in defaults):
        version = ffi.string(library.yalm_version()).decode()
        raise ImportError(f"yalm: {name} is {version}, of another yalm.h than {header}")
    return ffi, library


ffi, library = load()
NULL = ffi.NULL


def call(function, *arguments):
    """What a function of the library gives whose last argument is the error; raises Error where it fails."""
    error = ffi.new("yalm_error *")
    found = function(*arguments, error)
    if found == NULL if isinstance(found, ffi.CData) else found != 0:
        raise Error(ffi.string(error.text).decode("utf-8", "replace") or "interrupted", error.status)
    return found


def taken(text, length, kind="char"):
    """Bytes, or ids, that the library has allocated, and that are the caller's: freed here."""
    found = ffi.buffer(text[0], length[0])[:] if kind == "char" else ffi.unpack(text[0], length[0])
    library.free(text[0])
    return found
