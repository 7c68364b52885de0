#!/usr/bin/env python3
"""Shows that the rules of lint.py can fail: each is run on a small tree with one violation, and on one without.
Prints TAP."""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = "/* What this file is for, in enough words to count as a head comment. */\n"
GUARDED = HEAD + "#ifndef A_H\n#define A_H\n%s\n#endif\n"

# (file, content, a piece of the rule's name)
VIOLATIONS = [
    ("base/a.c", HEAD + '#include "quant/codec.h"\n', "includes point down"),
    ("bench/a.c", HEAD + '#include "base/memory.h"\n', "includes point down"),
    ("include/qccl/qccl.h", GUARDED % "#include <mpi.h>", "public headers include no header of mpi"),
    ("collectives/a.c", HEAD + "#if defined(QCCL_HAVE_MPI)\n#endif\n", "only the choosers look at the machine"),
    ("base/a.c", HEAD + "void f(void)\n{\n" + "    g();\n" * 120 + "}\n", "functions have at most 100 lines"),
    ("base/a.c", HEAD + ("void f(void)\n{\n" + "    g();\n" * 30 + "}\n") * 3, "half of all functions"),
    ("base/a.c", HEAD + "int x;\n" * 600, "files have fewer than 600 lines"),
    ("base/a.c", HEAD + "int x; " + "/* long */ " * 12 + "\n", "lines have at most 100 columns"),
    ("base/a.c", "int x;\n", "every file begins with a comment"),
    ("tests/a.py", "x = 1\n", "every file begins with a comment"),
    ("base/a.h", HEAD + "int x;\n", "headers are guarded"),
    ("base/a.c", HEAD + "/* TO" + "DO: more */\n", "nothing is left to do"),
    ("base/a.c", HEAD + "#define PASTE(a, b) a##b\n", "no token is pasted"),
    ("base/a.c", HEAD + "#define LEAVE(x) do { if (x) return 1; } while (0)\n", "no macro hides a return"),
    ("base/a.c", HEAD + "int x = ({ int y = 1; y; });\n", "no gnu statement expression"),
    ("base/a.c", HEAD + "struct s x = {1, 2};\n", "no positional initialiser"),
    ("base/a.c", HEAD + "struct s x[] = {{1, 2}};\n", "no positional initialiser"),
    ("base/a.c", HEAD + "void f(void)\n{\n    abort();\n}\n", "neither prints nor ends"),
    ("base/a.c", HEAD + 'void f(void)\n{\n    printf("x");\n}\n', "neither prints nor ends"),
    ("quant/a.c", HEAD + "void *f(void)\n{\n    return malloc(4);\n}\n", "memory comes from one place"),
    ("base/a.h", GUARDED % "int leaky_name(void);", "names that cross files begin with qccl"),
    ("base/a.c", HEAD + "int x; /* see /ro" + "ot/x */\n", "no path of one machine"),
    ("base/a.c", HEAD + "\tint x;\n", "no path of one machine and no tab"),
    ("docs/a.md", "see [that](gone.md)\n", "documents name only files that exist"),
    ("docs/a.md", "see `quant/gone.c`\n", "documents name only files that exist"),
    ("docs/a.md", "| codec | GB/s |\n|---|---|\n| int4 | 3.5 |\n", "every table of measurements"),
    ("tests/a.c", HEAD + "int main(void)\n{\n    return 0;\n}\n", "tests are in the table of lessons"),
    ("tests/a.c", HEAD + "Test(a, b)\n{\n    f();\n}\n", "every test asserts something"),
    ("base/a.c", HEAD + "int  x ;\n", "the code is formatted"),
]


def failing_rules(name, content):
    """The names of the rules that a tree with this one file breaks."""
    with tempfile.TemporaryDirectory() as root:
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path))
        shutil.copy(os.path.join(HERE, "..", ".clang-format"), root)
        with open(path, "w") as f:
            f.write(content)
        run = subprocess.run([sys.executable, os.path.join(HERE, "lint.py"), root], capture_output=True, text=True)
    return [line.split(" - ")[1] for line in run.stdout.splitlines() if line.startswith("not ok")]


def main():
    failed = 0
    for number, (name, content, rule) in enumerate(VIOLATIONS, 1):
        found = any(rule in broken for broken in failing_rules(name, content))
        failed += not found
        print(f"{'ok' if found else 'not ok'} {number} - a violation is found: {rule} ({name})")
    clean = failing_rules("base/a.c", HEAD + "int qccl_x;\n")
    unexpected = [rule for rule in clean if not rule.startswith("half of all functions")]
    failed += bool(unexpected)
    print(f"{'not ok' if unexpected else 'ok'} {len(VIOLATIONS) + 1} - a clean file breaks no rule {unexpected or ''}")
    print(f"1..{len(VIOLATIONS) + 1}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
