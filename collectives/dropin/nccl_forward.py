#!/usr/bin/env python3
"""Writes the functions of NCCL that the drop-in in NCCL's place only hands on.

    nccl_forward.py OUTPUT ENTRIES HEADERS COMPILER...

HEADERS are those of NCCL, separated by commas; the compiler preprocesses them.  nccl.h is included by what is written.
The others are C++ in part: their functions are written with any pointers, and with copies of the structs that they pass
by value.  Each pncclX is defined to call the real one, and ncclX is a weak alias of it, as in NCCL, but where ENTRIES,
a file of C, defines ncclX itself.
"""
import re
import subprocess
import sys

HEAD = """/* Functions of the installed NCCL headers, handed on to the real NCCL.  Made by nccl_forward.py. */
#include "collectives/dropin/nccl_call.h"
"""
# What a function returns that cannot be handed on; nothing where it returns nothing.
MISSING = {"ncclResult_t": "missing", "const char*": '"NCCL was not found, or is older than the program"',
           "int": "0", "void": None}


def preprocessed(compiler, headers):
    includes = "".join(f"#include <{h}>\n" for h in headers)
    return subprocess.run(compiler + ["-E", "-P", "-x", "c", "-"], input=includes, capture_output=True, text=True,
                          check=True).stdout


def declarations(text):
    """name: (result, [(parameter's type and name, its name)]) of each function of NCCL."""
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|\b(?:extern|__inline__|__inline)\b", " ", text)
    found = {}
    declaration = r"(?:\A|(?<=[;}]))\s*([\w \t\n*]+?)\s*\b(p?nccl\w+)\s*\(([^(){}]*)\)\s*;"
    for result, name, inside in re.findall(declaration, text):
        if "inline" in result.split():
            continue
        parameters = [" ".join(p.split()) for p in inside.split(",") if p.strip() not in ("", "void")]
        named = []
        for i, p in enumerate(parameters):
            unnamed = p.endswith("*") or len(p.replace("const", " ").split()) == 1
            named.append((f"{p} a{i}", f"a{i}") if unnamed else (p, re.search(r"(\w+)$", p).group(1)))
        found[name] = (re.sub(r"\s*\*", "*", " ".join(result.split())), named)
    return found


def without_their_types(functions, text, included):
    """The same functions with any pointers, and the structs that they need."""
    loose = {name: (result, [(f"void *{n}" if "*" in p else p, n) for p, n in parameters])
             for name, (result, parameters) in functions.items()}
    used = {t for result, parameters in loose.values() for p in [result, *(p for p, _ in parameters)]
            for t in re.findall(r"\b(nccl\w+)_t\b", p) if not re.search(rf"\b{t}_t;", included)}
    bodies = {t: re.search(rf"\bstruct {t}\s*(\{{[^{{}}]*\}})\s*;", text) for t in sorted(used)}
    return loose, [f"typedef struct {body.group(1)} {t}_t;\n" for t, body in bodies.items()]


def definition(name, result, parameters):
    typed = ", ".join(p for p, _ in parameters) or "void"
    call = f"go_on({', '.join(n for _, n in parameters)})"
    other = MISSING.get(result, f"({result}){{0}}")
    lines = [f"QCCL_API {result} p{name}({typed});", f"{result} p{name}({typed})", "{",
             f'    static struct nccl_next next = {{.name = "{name}"}};', "    ncclResult_t missing;",
             f"    typedef {result} here({typed});", "    here *go_on = (here *)qccl_nccl_next(&next, &missing);"]
    lines += [f"    return go_on ? {call} : {other};"] if other else ["    if (go_on)", f"        {call};"]
    return "\n".join(lines + ["}", ""])


def alias(name, result, parameters):
    typed = ", ".join(p for p, _ in parameters) or "void"
    return f'QCCL_API {result} {name}({typed}) __attribute__((weak, alias("p{name}")));\n'


def main():
    output, entries, headers, compiler = sys.argv[1], sys.argv[2], sys.argv[3].split(","), sys.argv[4:]
    included, text = preprocessed(compiler, headers[:1]), preprocessed(compiler, headers)
    declared = declarations(included)
    others = {name: what for name, what in declarations(text).items() if name not in declared}
    loose, structs = without_their_types(others, text, included)
    declared.update(loose)
    with open(entries, encoding="utf-8") as f:
        taken = set(re.findall(r"^ncclResult_t (nccl\w+)\(", f.read(), re.M))
    with open(output, "w", encoding="utf-8") as f:
        f.write(HEAD + "".join(structs))
        for name in sorted({name.removeprefix("p") for name in declared}):
            what = declared.get(name) or declared["p" + name]
            f.write("\n" + definition(name, *what))
            if name not in taken:
                f.write(alias(name, *what))


main()
