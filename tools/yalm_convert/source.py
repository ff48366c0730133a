"""Reading a model directory: which files are believed, and JSON that means one thing only."""

import json
from pathlib import Path
from typing import Any, Optional

from .errors import ModelError

MAX_TEXT = 256 << 20  # bytes
LFS_POINTER = b"version https://git-lfs"


def shown(value: Any) -> str:
    """A value from the directory, short and on one line, for an error's text."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:76] + " ..."


def alike(value: Any) -> Any:
    """The one number of a list whose entries are all the same; else the value itself."""
    same = isinstance(value, list) and value and value.count(value[0]) == len(value)
    return value[0] if same and not isinstance(value[0], str) else value


_follow_links = False


def follow_links(allowed: bool) -> None:
    """Whether symbolic links may lead anywhere from here on. The user says that they are the user's own."""
    global _follow_links
    _follow_links = allowed


def locate(model_dir: Path, name: str) -> Optional[Path]:
    """The file `name` of the directory, or None where there is none.

    A downloaded directory must not make us read files elsewhere. Unless the user allows more, a symbolic link may
    leave it in one way only: that of Hugging Face's cache, where .../snapshots/REVISION/NAME links to .../blobs/HASH.
    """
    path = model_dir / name
    if not path.exists():
        if path.is_symlink():
            raise ModelError(f"{path}: a symbolic link to a file that is missing")
        return None
    real, home = path.resolve(), model_dir.resolve()
    blobs = next((p.parent / "blobs" for p in home.parents if p.name == "snapshots"), None)
    if home not in real.parents and real.parent != blobs and not _follow_links:
        raise ModelError(
            f"{path}: a symbolic link that leaves the model's directory, to {real}: --follow-links allows it"
        )
    if not path.is_file():
        raise ModelError(f"{path}: not a file")
    return path


def refuse_pointer(path: Path, beginning: bytes) -> None:
    if beginning.startswith(LFS_POINTER):
        raise ModelError(f"{path}: a git-lfs pointer, not the file itself; fetch it with 'git lfs pull'")


def parse_json(data: bytes, what: str) -> dict:
    """A JSON object from UTF-8, without duplicate keys. Numbers may still be NaN or huge: who reads them checks."""

    def unique(pairs: list) -> dict:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen = set()
            key = next(k for k, _ in pairs if k in seen or seen.add(k))
            raise ModelError(f"{what}: duplicate key {shown(key)}")
        return members

    try:
        value = json.loads(_decode(data, what), object_pairs_hook=unique)
    except ValueError as error:
        raise ModelError(f"{what}: not JSON: {error}") from None
    except RecursionError:
        raise ModelError(f"{what}: not JSON: nested too deeply") from None
    if not isinstance(value, dict):
        raise ModelError(f"{what}: found {shown(value)}, expected a JSON object")
    return value


def _decode(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{what}: not UTF-8: {error.reason} at byte {error.start}") from None


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_TEXT:
        raise ModelError(f"{path}: {size} bytes, expected at most {MAX_TEXT}")
    data = path.read_bytes()
    refuse_pointer(path, data)
    return data


def read_json(path: Path) -> dict:
    return parse_json(_read(path), str(path))


def read_text(path: Path) -> str:
    return _decode(_read(path), str(path))


def model_name(model_dir: Path) -> str:
    """The model's name: the directory's, or the repository's where the directory lies in Hugging Face's cache."""
    home = model_dir.resolve()
    repository = home.parent.parent.name
    if home.parent.name == "snapshots" and repository.startswith("models--"):
        return repository[len("models--") :].replace("--", "/")
    return home.name.encode("utf-8", "replace").decode("utf-8")
