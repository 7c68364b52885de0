#!/usr/bin/env python3
"""House rules as a test: layers, sizes, head comments, forbidden words and constructs, documents that name
what exists.  Prints TAP.

    lint.py [ROOT]

Each rule is a function that yields violations as "file:line: what is wrong".  The rules are those of CONTRIBUTING.md.
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = (".c", ".h")
LAYERS = {"base": {"base", "qccl"}, "quant": {"base", "quant", "qccl"},
          "collectives": {"base", "quant", "collectives", "qccl"},
          "overlap": {"base", "quant", "collectives", "overlap", "qccl"}, "include": {"qccl"},
          "bench": {"bench", "qccl"}}
LIBRARY = ("base", "quant", "collectives", "overlap")
PUBLIC = ("include/qccl/qccl.h", "include/qccl/qccl_training.h")
FUNCTION_LINES, FILE_LINES, COLUMNS, SCRIPT_COLUMNS = 100, 600, 100, 120
CHOOSERS = {"quant/kernels.c", "overlap/optimizer.c", "quant/x86/intrinsics.h", "base/cpu.c", "bench/bandwidth.c"}


def tracked():
    """The files of the tree, relative to the root: those that git does not ignore, or all outside build folders."""
    run = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if run.returncode == 0 and run.stdout:
        return sorted(f for f in run.stdout.split("\n") if f and os.path.isfile(os.path.join(ROOT, f)))
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [d for d in folders if not d.startswith(("build", ".git"))]
        found += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return sorted(found)


FILES = tracked()
TEXT = {}
for name in FILES:
    try:
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            TEXT[name] = f.read()
    except UnicodeDecodeError:
        pass
C_FILES = [name for name in FILES if name.endswith(SOURCE) and name in TEXT]


def without_comments(text):
    """C text with comments and strings blanked, line breaks kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)


CODE = {name: without_comments(TEXT[name]) for name in C_FILES}


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def matches(pattern, names, texts, what, flags=re.M):
    for name in names:
        for m in re.finditer(pattern, texts.get(name, ""), flags):
            yield f"{name}:{line_of(texts[name], m.start())}: {what}: {m.group(0).strip()[:80]}"


# ---------------------------------------------------------------- layers
def includes_point_down_the_layers():
    for name in C_FILES:
        allowed = LAYERS.get(name.split("/")[0])
        for m in re.finditer(r'^\s*#\s*include\s*"([^"]+)"', TEXT[name], re.M):
            where = f"{name}:{line_of(TEXT[name], m.start())}"
            folder = m.group(1).split("/")[0]
            if "/" not in m.group(1):
                yield f"{where}: an include is not written from the root: {m.group(1)}"
            elif allowed is not None and folder not in allowed:
                yield f"{where}: {name.split('/')[0]} may not include {m.group(1)}"
            elif folder != "qccl" and not os.path.isfile(os.path.join(ROOT, m.group(1))):
                yield f"{where}: no such file from the root: {m.group(1)}"


def the_public_headers_include_no_header_of_mpi_or_cuda_but_qccl_mpi():
    for name in [f for f in PUBLIC if os.path.isfile(os.path.join(ROOT, f))]:
        yield from matches(r"^\s*#\s*include\s*[<\"](mpi|cuda|nccl)", [name], TEXT, "includes")
        allowed = r'(<(stddef|stdint)\.h>|"qccl/qccl(_training)?\.h")'
        yield from matches(rf"^\s*#\s*include(?!\s*{allowed})", [name], TEXT, "includes")


def only_the_choosers_look_at_the_machine():
    pattern = r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b[^\n]*(?:MPI|CUDA|NCCL|AVX|SSE|x86|X86|__AVX|EMULATED)[^\n]*"
    names = [n for n in C_FILES if n not in CHOOSERS and n.split("/")[0] in LAYERS]
    for v in matches(pattern, names, CODE, "a conditional on the machine"):
        if not re.search(r"#ifndef (QCCL_\w+_H)\b", v):
            yield v


# ---------------------------------------------------------------- sizes and heads
def functions(name):
    """(line, lines) of every function body: a brace in column 0 to the next one."""
    lines = CODE[name].split("\n")
    start = None
    for i, line in enumerate(lines):
        if line == "{":
            start = i
        elif line == "}" and start is not None:
            yield start + 1, i - start + 1
            start = None


def functions_have_at_most_100_lines():
    for name in C_FILES:
        for line, lines in functions(name):
            if lines > FUNCTION_LINES:
                yield f"{name}:{line}: a function of {lines} lines"


def half_of_all_functions_have_at_most_15_lines():
    sizes = sorted(lines for name in C_FILES for _, lines in functions(name))
    if not sizes or sizes[len(sizes) // 2] > 15 + 2:  # the braces are counted too
        yield f"the median of {len(sizes)} functions is {sizes[len(sizes) // 2] if sizes else 0} lines"


def files_have_fewer_than_600_lines():
    for name in set(FILES) - {"bindings/python/qccl.py"}:  # which is one file, to be copied as such
        if name.endswith(SOURCE + (".py", ".sh", ".build")) and TEXT.get(name, "").count("\n") >= FILE_LINES:
            yield f"{name}:1: {TEXT[name].count(chr(10))} lines"


def lines_have_at_most_100_columns_and_those_of_scripts_120():
    for name in FILES:
        limit = COLUMNS if name.endswith(SOURCE) else SCRIPT_COLUMNS
        if not name.endswith(SOURCE + (".py", ".sh", ".build")):
            continue
        for number, line in enumerate(TEXT.get(name, "").split("\n"), 1):
            if len(line) > limit:
                yield f"{name}:{number}: {len(line)} columns"


def every_file_begins_with_a_comment_that_says_what_it_is_for():
    for name in FILES:
        text = TEXT.get(name, "")
        if name.endswith(SOURCE) and not re.match(r"/\* (See [\w/.]+\.h|\S(.|\n){30,}?)", text):
            yield f"{name}:1: no head comment"
        elif name.endswith(".py") and not re.match(r'(#![^\n]*\n)?"""\S', text):
            yield f"{name}:1: no head comment"
        elif name.endswith((".sh", "/run")) and not re.match(r"#![^\n]*\n# \S", text):
            yield f"{name}:1: no head comment"
        elif name.endswith("meson.build") and name != "meson.build" and not text.startswith("# "):
            yield f"{name}:1: no head comment"


def headers_are_guarded_by_their_own_name():
    for name in C_FILES:
        if name.endswith(".h") and not re.search(r"^#ifndef (\w+_H)\n#define \1\n", TEXT[name], re.M):
            yield f"{name}:1: no include guard"


# ---------------------------------------------------------------- words and constructs
def nothing_is_left_to_do():
    words = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK", "not " + "implemented",
                      "place" + "holder", "st" + "ub"))
    for name in FILES:
        if name in TEXT and not name.startswith("tests/golden/"):
            yield from matches(r"\b(?:%s)\b" % words, [name], TEXT, "a word that says unfinished", re.I)


def no_token_is_pasted():
    yield from matches(r"^\s*#\s*define(?:[^\n\\]|\\\n|\\.)*##", C_FILES, CODE, "token pasting")


def no_macro_hides_a_return_or_a_goto_but_the_two():
    for name in C_FILES:
        for m in re.finditer(r"^\s*#\s*define\s+(\w+)((?:[^\n\\]|\\\n|\\.)*)", CODE[name], re.M):
            known = m.group(1) in ("RETURN_IF_FAILED", "CHECK_ARG", "QCCL_RESULT_CASE")
            if not known and re.search(r"\b(return|goto)\b", m.group(2)):
                yield f"{name}:{line_of(CODE[name], m.start())}: a macro that hides control flow: {m.group(1)}"


def no_gnu_statement_expression_and_no_compiler_extension():
    yield from matches(r"\(\s*\{(?!\s*\.)[^}]*;", C_FILES, CODE, "a statement expression")
    yield from matches(r"\b__typeof__\b|\btypeof\b|\balloca\b", C_FILES, CODE, "an extension")


def no_positional_initialiser_of_a_struct():
    """struct x y = {1, 2}, or an array of such; {0} and designated initialisers are fine."""
    for name in C_FILES:
        for m in re.finditer(r"\bstruct\s+\w+\s+\w+((?:\[[^\]]*\])*)\s*=\s*\{", CODE[name]):
            rest = re.sub(r"^\s*#[^\n]*$", "", CODE[name][m.end():m.end() + 400], flags=re.M).lstrip()
            inner = bool(m.group(1)) and rest.startswith(("{", "["))
            if inner:
                rest = rest.partition("{")[2].lstrip()
            values = bool(m.group(1)) and not inner and re.match(r"\w+[,}(]", rest)
            if not rest.startswith((".", "0}", "}")) and not values:
                yield f"{name}:{line_of(CODE[name], m.start())}: a positional initialiser: {m.group(0)}"


def no_unsafe_call_and_the_library_neither_prints_nor_ends_the_process():
    yield from matches(r"\b(?:gets|atoi|atol|atof|sprintf_s|strtok)\s*\(", C_FILES, CODE, "an unsafe call")
    library = [n for n in C_FILES if n.split("/")[0] in LIBRARY]
    yield from matches(r"(?<![>.\w])(?:abort|exit|_Exit)\s*\(", library, CODE, "the library ends the process")
    yield from matches(r"\bprintf\s*\(", library, CODE, "the library prints")


def memory_comes_from_one_place():
    names = [n for n in C_FILES if n.split("/")[0] in LIBRARY and n != "base/memory.c"]
    yield from matches(r"\b(?:malloc|calloc|realloc|aligned_alloc)\s*\(", names, CODE, "memory from elsewhere")


def names_that_cross_files_begin_with_qccl():
    for name in C_FILES:
        if name.split("/")[0] not in ("base", "collectives") or not name.endswith(".h"):
            continue
        declared = r"^(?!static|typedef|extern \"C\"|#|\s|\}|/|enum|struct \w+ \{)[\w \*]+?\b(\w+)\("
        for m in re.finditer(declared, CODE[name], re.M):
            if not m.group(1).startswith(("qccl", "__attribute__")):
                yield f"{name}:{line_of(CODE[name], m.start())}: {m.group(1)}"


def no_path_of_one_machine_and_no_tab():
    names = [n for n in FILES if n in TEXT and n != "tests/lint.py"]
    yield from matches(r"/work/|/home/\w|/root/", names, TEXT, "a path of one machine")
    written = [n for n in names if n.endswith(SOURCE + (".py", ".sh", ".md", ".build"))]
    yield from matches(r"\t| +$", written, TEXT, "a tab or a space at the end")


# ---------------------------------------------------------------- documents
def documents_name_only_files_that_exist():
    """Links, and words in code type that look like a file of this tree."""
    built = re.compile(r"^(build|build-\w+)/|^\$|^~|^/|^DIR/|\*|<|\$")
    for name in (n for n in FILES if n.endswith(".md") and n in TEXT):
        base = os.path.dirname(name)
        for m in re.finditer(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT[name]):
            here = os.path.exists(os.path.join(ROOT, base, m.group(1)))
            if not here and not re.match(r"https?:|mailto:", m.group(1)):
                yield f"{name}:{line_of(TEXT[name], m.start())}: a link to {m.group(1)}"
        for m in re.finditer(r"`((?:%s|bench|tests|docs|include|\.ci)/[\w./-]+)`" % "|".join(LIBRARY), TEXT[name]):
            path = m.group(1).rstrip("/.")
            if not built.search(path) and not os.path.exists(os.path.join(ROOT, path)):
                yield f"{name}:{line_of(TEXT[name], m.start())}: names {path}"


def every_table_of_measurements_says_the_command_that_made_it():
    """A table with measured numbers has a command, in code type or a code block, in the 40 lines around it."""
    units = r"GB/s|\bms\b|µs|\bus\b|values/s|busbw|share|seconds|loss|ratio|error"
    command = r"build/bench/|qccl-(perf|codec|apply|gpt)|bench/\w+\.sh|mpirun"
    measured = re.compile(r"\|\s*[\d.,]+\s*(?:ms|us|µs|ns|GB/s|GiB/s|%|x|×|G|M)?\s*\|")
    for name in (n for n in FILES if n.endswith(".md") and n in TEXT):
        lines = TEXT[name].split("\n")
        for i, line in enumerate(lines):
            head = line.startswith("|") and i + 1 < len(lines) and re.match(r"\|[ :|-]+\|$", lines[i + 1])
            if not head or not re.search(units, line, re.I):
                continue
            body = "\n".join(lines[i + 2:i + 12])
            around = "\n".join(lines[max(0, i - 40):i + 40])
            if measured.search(body) and not re.search(command, around):
                yield f"{name}:{i + 1}: a table of measurements without its command"


def tests_are_in_the_table_of_lessons():
    """docs/testing.md names every test program, and only such."""
    text = TEXT.get("docs/testing.md", "")
    tests = [n for n in C_FILES if n.startswith("tests/") and re.search(r"^Test\(|^int main\(", TEXT[n], re.M)]
    programs = {os.path.basename(n)[:-2] for n in tests}
    for program in sorted(programs):
        if not re.search(r"`(?:tests/)?(?:[\w-]+/)?%s(?:\.c)?`" % re.escape(program), text):
            yield f"docs/testing.md:1: does not name {program}"


def every_test_asserts_something():
    function = re.compile(r"^(?:static )?[\w \*]+?\b(\w+)\([^;{]*\)\n\{\n(.*?)^\}", re.M | re.S)
    for name in (n for n in C_FILES if n.startswith("tests/")):
        asserting = {f for f, body in function.findall(TEXT[name])
                     if re.search(r"\bcr_\w+\(|\b(?:check|expect)\w*\(", body)}
        for m in re.finditer(r"^Test\((\w+),\s+(\w+)[^\n]*\)\n\{\n(.*?)^\}", TEXT[name], re.M | re.S):
            calls = set(re.findall(r"\b(\w+)\(", m.group(3)))
            if not any(c.startswith("cr_") for c in calls) and not calls & asserting:
                yield f"{name}:{line_of(TEXT[name], m.start())}: {m.group(2)} asserts nothing"


def the_code_is_formatted():
    if not shutil.which("clang-format"):
        return
    run = subprocess.run(["clang-format", "--dry-run", "-Werror"] + C_FILES, cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        seen = re.findall(r"^([^:\n]+):(\d+):\d+: error", run.stderr, re.M)
        for name in sorted({n for n, _ in seen}):
            yield f"{name}:{next(l for n, l in seen if n == name)}: {sum(n == name for n, _ in seen)} places"


HELPERS = ("tracked", "without_comments", "line_of", "matches", "functions")
RULES = [rule for name, rule in list(globals().items())
         if callable(rule) and getattr(rule, "__module__", "") == "__main__" and name not in HELPERS]


def main():
    failed = 0
    for number, rule in enumerate(RULES, 1):
        wrong = list(rule())
        failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {number} - {rule.__name__.replace('_', ' ')}")
        for line in wrong[:40]:
            print("# " + line)
    print(f"1..{len(RULES)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
