"""Every link of the documents, and every mention of a document's section in a comment, leads somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(path for path in ROOT.rglob("*.md") if path.relative_to(ROOT).parts[0] not in ("build", ".venv"))
SOURCES = ("*.c", "*.h", "*.cc", "*.cu", "*.cuh", "*.py", "Makefile", "*.mk")


def without_code(text):
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`|^    .*$", "", text, flags=re.M)


def anchors(text):
    """What GitHub makes of headings, and those given by hand."""
    found = set(re.findall(r'<a id="([^"]+)">', text))
    seen = {}
    for heading in re.findall(r"^#+ +(.+?)\s*$", text, flags=re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)|<[^>]*>", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def resolves(path, anchor):
    if not path.exists():
        return False
    return not anchor or (path.suffix == ".md" and anchor in anchors(path.read_text(encoding="utf-8")))


def test_there_are_documents():
    assert ROOT / "README.md" in DOCUMENTS and len(DOCUMENTS) > 8


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    text = without_code(document.read_text(encoding="utf-8"))
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        if not resolves((document.parent / file).resolve() if file else document, anchor):
            broken.append(target)
    assert broken == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")
def test_sections_that_comments_name_exist():
    pattern = r"[A-Za-z./-]*docs/[a-z-]+\.md(#[a-z0-9-]+)?"
    listed = subprocess.run(
        ["git", "grep", "-noE", pattern, "--", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(listed) > 10
    broken = []
    for line in listed:
        mention = line.split(":", 2)[2]
        if "//" in mention:  # elsewhere in the world
            continue
        file, _, anchor = mention[mention.index("docs/") :].partition("#")
        if not resolves(ROOT / file, anchor):
            broken.append(line)
    assert broken == []
