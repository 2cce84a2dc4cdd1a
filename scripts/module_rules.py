#!/usr/bin/env python3
"""Checks rules about the source files of our crates:

- the files of a crate do not import each other in a circle. An arrow leads from a file to the file
  that defines a name it uses. A re-exported name counts as defined in its original file, so a
  re-export alone is not an arrow. A method that a file adds to a type of another file is seen by its name, if
  the crate has one function of that name, and none of the standard library's is called so. Test modules are
  ignored;
- the rooms of a folder, its files and folders with all that is in them, do not import each other in a
  circle either;
- a file holds one idea. One of more than 800 lines says why it cannot be two, in a comment
  `// Long because ...` in its first ten lines.

`module_rules.py --arrows CRATE...` prints the arrows between the files of these crates.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_LINES = 800
REASON = re.compile(r"//[/!]? *Long because \w")

# Comments and literals in one pass, so that none is found inside another.
TOKEN = re.compile(
    r"""
    //[^\n]*
    | /\*.*?\*/
    | \bb?r(?P<hashes>\#*)".*?"(?P=hashes)
    | b?c?"(?:\\.|[^"\\])*"
    | b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\\n])'
    """,
    re.VERBOSE | re.DOTALL,
)
USE = re.compile(r"\b(?P<public>pub(?:\([^)]*\))?\s+)?use\s+(?P<tree>[^;]+);")
MODULE = re.compile(r"\bmod\s+(\w+)\s*;")
TEST_ITEM = re.compile(r"#\[cfg\((?:test|all\(test\b[^]]*)\)\]")
IMPL = re.compile(r"^\s*impl\b", re.MULTILINE)
FUNCTION = re.compile(r"\bfn\s+(\w+)")
METHOD = re.compile(r"\bfn\s+(\w+)\s*(?:<[^(]*>)?\s*\(\s*(?:&\s*(?:'\w+\s+)?)?(?:mut\s+)?self\b")
TYPE = re.compile(r"\b(?:struct|enum|union|trait)\s+(\w+)")
# Methods of the standard library, whose calls say nothing about a method of ours.
STANDARD = {"accept", "chain", "contains", "end", "finish", "flush", "get", "insert", "kill", "len", "lock", "name", "next",
            "open", "path", "push", "read", "remove", "rename", "run", "send", "size", "spawn", "start", "take", "wait",
            "write"}
PATH = re.compile(r"(?<![\w:.])(?:\w+::)+\w+")


def main(args):
    named = {arg for arg in args if not arg.startswith("-")}
    problems = []
    for manifest in sorted([*ROOT.glob("crates/*/Cargo.toml"), *ROOT.glob("*/Cargo.toml")]):
        folder = manifest.parent
        if not (folder / "src").is_dir() or folder.name in ("fuzz", "benches"):
            continue
        crate = Crate(folder)
        problems += crate.problems()
        problems += [f"circle of rooms: {arrow}" for arrow in sorted(crate.room_circles())]
        if "--arrows" in args and folder.name in named:
            for source, target in sorted(crate.arrows):
                names = ", ".join(sorted(crate.arrows[source, target]))
                print(f"    {crate.shown(source)} -> {crate.shown(target)}: {names}")
    for problem in problems:
        print(f"    {problem}")
    if not problems:
        print("    no circle of files or folders")
    return 1 if problems else 0


class Crate:
    """Files of one crate, and the names they use from each other."""

    def __init__(self, folder):
        self.folder = folder
        self.modules = {}
        self.arrows = {}
        for root in ("lib.rs", "main.rs"):
            path = folder / "src" / root
            if path.is_file() and () not in self.modules:
                self.load(path, ())
        for module in list(self.modules.values()):
            self.connect(module)
        self.connect_methods()

    def load(self, path, names):
        module = self.modules[names] = Module(path, names)
        inside = path.parent if path.name in ("lib.rs", "main.rs", "mod.rs") else path.with_suffix("")
        for child in module.children:
            for candidate in (inside / f"{child}.rs", inside / child / "mod.rs"):
                if candidate.is_file():
                    self.load(candidate, (*names, child))

    def connect(self, module):
        """Records the arrows from one module."""
        for name, path in module.imports.items():
            self.arrow(module, path, name)
        for path in module.globs:
            self.arrow(module, path, "*")
        for name, path in module.exports.items():
            if re.search(rf"\b{name}\b", module.body):
                self.arrow(module, path, name)
        for path in set(PATH.findall(module.body)):
            names = path.split("::")
            first = names[0]
            if first in ("crate", "self", "super") or first in module.children:
                self.arrow(module, module.absolute(names), names[-1])
            elif (base := module.imports.get(first) or module.exports.get(first)) is not None:
                if base in self.modules:
                    self.arrow(module, base + tuple(names[1:]), names[-1])

    def connect_methods(self):
        """Records the arrows to methods of a type that is defined in another file than they are."""
        functions, added = {}, {}
        for module in self.modules.values():
            own = set(TYPE.findall(module.code))
            for name in FUNCTION.findall(module.code):
                functions[name] = functions.get(name, 0) + 1
            for name, body in implementations(module.code):
                if name not in own:
                    added.update((method, module.names) for method in METHOD.findall(body))
        for method, target in added.items():
            if functions[method] > 1 or method in STANDARD:
                continue
            call = re.compile(rf"\.\s*{method}\s*(?:::<[^>]*>)?\(")
            for module in self.modules.values():
                if module.names != target and call.search(module.body):
                    self.arrows.setdefault((module.names, target), set()).add(f".{method}()")

    def arrow(self, module, path, name):
        target = self.resolve(path, set())
        if target is not None and target is not module:
            self.arrows.setdefault((module.names, target.names), set()).add(name)

    def resolve(self, path, seen):
        """Returns the module that defines the name in `path`; None for a module itself and for
        names of other crates."""
        if path is None or path in seen:
            return None
        seen = seen | {path}
        here = ()
        for at, name in enumerate(path):
            rest = path[at + 1:]
            if here + (name,) in self.modules:
                here += (name,)
                continue
            module = self.modules.get(here)
            if module is None:
                return None
            base = module.exports.get(name) or module.imports.get(name)
            if base is not None:
                return self.resolve(base + rest, seen)
            for base in module.globs:
                found = self.resolve(base + path[at:], seen)
                if found is not None and re.search(rf"\b{name}\b", found.body):
                    return found
            return module
        return None

    def problems(self):
        found = []
        for circle in circles(self.modules, self.arrows):
            steps = " -> ".join(self.shown(names) for names in [*circle, circle[0]])
            found.append(f"circle: {steps}")
        for module in self.modules.values():
            lines = module.text.count("\n")
            if lines > MAX_LINES and not module.is_test and not has_reason(module.text.splitlines()[:10]):
                where = module.path.relative_to(ROOT)
                found.append(f"{where}: {lines} lines; one idea a file: split it, or write `// Long because ...`")
        return found

    def room_circles(self):
        """Returns the arrows between rooms of one folder that are part of a circle."""
        folders = {}
        for source, target in self.arrows:
            # Where the two paths part. A file and its own folder are one room.
            depth = next((at for at, pair in enumerate(zip(source, target)) if pair[0] != pair[1]), None)
            if depth is not None:
                rooms = folders.setdefault(source[:depth], set())
                rooms.add((source[depth], target[depth]))
        found = set()
        for folder, arrows in folders.items():
            after = {}
            for source, target in arrows:
                after.setdefault(source, set()).add(target)
                after.setdefault(target, set())
            reach = {room: reachable(after, room) for room in after}
            where = "/".join((self.folder.name, *folder))
            found |= {
                f"{where}: {source} -> {target}" for source, target in arrows if source in reach[target]
            }
        return found

    def shown(self, names):
        return str(self.modules[names].path.relative_to(self.folder.parent))


class Module:
    """One file: its child modules, and the names that it imports, exports and uses."""

    def __init__(self, path, names):
        self.path, self.names = path, names
        self.text = path.read_text()
        self.is_test = "tests" in names or "tests.rs" in path.name
        # Line numbers stay; test items are removed.
        self.code = without_tests(blank(self.text))
        self.children = set(MODULE.findall(self.code))
        self.imports, self.exports, self.globs = {}, {}, []
        for use in USE.finditer(self.code):
            for tokens, name in flatten(use["tree"]):
                target = self.absolute(tokens)
                if target is None:
                    continue
                if name == "*":
                    self.globs.append(target)
                elif use["public"]:
                    self.exports[name] = target
                else:
                    self.imports[name] = target
        self.body = MODULE.sub("", USE.sub("", self.code))

    def absolute(self, tokens):
        """Returns a path from the root of the crate; None for another crate's path."""
        names, tokens = self.names, list(tokens)
        if tokens[0] == "crate":
            names, tokens = (), tokens[1:]
        elif tokens[0] in ("self", "super"):
            while tokens and tokens[0] in ("self", "super"):
                if tokens.pop(0) == "super":
                    names = names[:-1]
        elif tokens[0] not in self.children:
            return None
        return names + tuple(tokens)


def blank(text):
    """Returns the text with blank comments and literals; lines and lengths stay."""
    return TOKEN.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def without_tests(code):
    """Returns the code without test-only items."""
    while match := TEST_ITEM.search(code):
        end = item_end(code, match.end())
        code = code[:match.start()] + re.sub(r"[^\n]", " ", code[match.start():end]) + code[end:]
    return code


def item_end(code, start):
    """Returns the end of the item that begins at `start`: after its `;` or its braces."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] in "([":
            depth += 1
        elif code[at] in ")]":
            depth -= 1
        elif depth == 0 and code[at] in ";,":
            return at + 1
        elif depth == 0 and code[at] == "{":
            return braces_end(code, at)
    return len(code)


def braces_end(code, start):
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(code)


def implementations(code):
    """Yields the type and the body of each implementation that is not one of a trait."""
    for match in IMPL.finditer(code):
        begin = code.find("{", match.end())
        head = code[match.end():begin].split(" where ")[0].strip()
        if begin < 0 or re.search(r"\bfor\b", head):
            continue
        if head.startswith("<"):
            depth = 0
            for at, char in enumerate(head):
                depth += (char == "<") - (char == ">" and head[at - 1] != "-")
                if depth == 0:
                    head = head[at + 1:]
                    break
        if name := re.match(r"\s*(?:\w+::)*(\w+)", head):
            yield name[1], code[begin:braces_end(code, begin)]


def flatten(tree):
    """Yields the paths of a use tree, each as its tokens and its name in this file."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, alias = (part.strip() for part in re.sub(r"\s+as\s+", " as ", tree).partition(" as "))
        tokens = [token.strip() for token in path.split("::") if token.strip()]
        if tokens and tokens[-1] == "self":
            tokens.pop()
        if tokens and tokens[-1] == "*":
            yield tokens[:-1] or ["self"], "*"
        elif tokens:
            yield tokens, alias or tokens[-1]
        return
    front, inside = tree[:brace], tree[brace + 1:tree.rindex("}")]
    depth, piece = 0, ""
    for char in inside + ",":
        if char == "," and depth == 0:
            if piece.strip():
                yield from flatten(front + piece.strip())
            piece = ""
            continue
        depth += (char == "{") - (char == "}")
        piece += char


def has_reason(lines):
    return any(REASON.search(line) for line in lines)


def circles(modules, arrows):
    """Yields one shortest circle for each group of files that reach each other."""
    after = {names: set() for names in modules}
    for source, target in arrows:
        after[source].add(target)
    reach = {names: reachable(after, names) for names in modules}
    seen = set()
    for names in sorted(modules):
        if names in seen or names not in reach[names]:
            continue
        group = {other for other in reach[names] if names in reach[other]}
        seen |= group
        yield min((shortest(after, start) for start in sorted(group)), key=len)


def reachable(after, start):
    found, todo = set(), list(after[start])
    while todo:
        names = todo.pop()
        if names not in found:
            found.add(names)
            todo += after[names]
    return found


def shortest(after, start):
    """Returns the shortest path from `start` back to it."""
    ways, seen = [[start]], set()
    for way in ways:
        for names in sorted(after[way[-1]]):
            if names == start:
                return way
            if names not in seen:
                seen.add(names)
                ways.append([*way, names])
    return [start]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
