"""No circles of files: neither by includes, nor by what a file calls that another one defines."""

import re

from harness import ROOT

FILES = {str(path.relative_to(ROOT / "src")): path.read_text("utf-8") for path in (ROOT / "src").rglob("*.[ch]*")}
ASIDE = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", flags=re.S)  # comments and texts
CODE = {name: ASIDE.sub("", text) for name, text in FILES.items()}
# What begins in the first column, as clang-format has it: a function's definition, or a table's; a declaration.
DEFINITION = re.compile(
    r"^(?!static\b|typedef\b|struct \w+\s*\{|enum\b|extern\b|template\b)[a-z][\w \*]*?\b(\w+)"
    r"(?:\([^;{}]*\)\s*\{|(?:\[\w*\])*\s*=)",
    flags=re.M,
)
DECLARATION = re.compile(r"^(?!static\b|typedef\b|struct \w+\s*\{|enum\b|template\b)[a-z][^;{}=]*;", flags=re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', flags=re.M)
INCLUDES = {name: set(INCLUDE.findall(text)) for name, text in FILES.items()}


def circles(arrows):
    """The groups of files that can be reached from each other (Tarjan 1972)."""
    number, low, stack, found = {}, {}, [], []

    def visit(name):
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in sorted(arrows.get(name, ())):
            if other not in number:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(members) > 1:
                found.append(sorted(members))

    for name in sorted(arrows):
        if name not in number:
            visit(name)
    return found


def reached(name, known):
    """A file, and all that it includes or what these include."""
    if name not in known:
        known.add(name)
        for other in INCLUDES.get(name, ()):
            reached(other, known)
    return known


def without_namespaces(code):
    """Less what stands in `namespace { … }`, which no other file sees."""
    while (begin := code.find("namespace\n{")) >= 0 or (begin := code.find("namespace {")) >= 0:
        at, depth = code.index("{", begin) + 1, 1
        while depth:
            depth += (code[at] == "{") - (code[at] == "}")
            at += 1
        code = code[:begin] + code[at:]
    return code


def calls():
    """For each source file, the other ones that define what it uses: a name that a header declares which both include."""
    declared = {
        name: set(re.findall(r"\w+", re.sub(r"\([^;]*\)", "", " ".join(DECLARATION.findall(code)))))
        for name, code in CODE.items()
    }
    headers = {name: reached(name, set()) - {name} for name in CODE if name.endswith((".c", ".cu"))}
    homes = {}
    for source in headers:
        for name in DEFINITION.findall(without_namespaces(CODE[source])):
            homes.setdefault(name, set()).add(source)
    arrows = {}
    for source, included in headers.items():
        used = set(re.findall(r"(?<![.>\w])\w+", CODE[source]))
        arrows[source] = {
            home
            for word in used & homes.keys()
            if source not in homes[word]
            for home in homes[word]
            if any(word in declared.get(header, ()) for header in included & headers[home])
        }
    return arrows


def test_no_circle_of_includes():
    assert sum(map(len, INCLUDES.values())) > 500
    assert circles(INCLUDES) == []


def test_no_circle_of_calls():
    arrows = calls()
    assert sum(map(len, arrows.values())) > 500
    assert circles(arrows) == []


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
