#!/usr/bin/env python3
"""Writes the functions of NCCL that the drop-in in NCCL's place only hands on.

    nccl_forward.py OUTPUT ENTRIES HEADERS READ COMPILER...

HEADERS is a list, separated by commas, of what to include; READ of headers that are not C as a whole, and whose
functions therefore take any pointers here.  Each pncclX is defined to call the real one, and ncclX is a weak alias of
it, as in NCCL, but where ENTRIES, a file of C, defines ncclX itself.
"""
import re
import subprocess
import sys

HEAD = """/* Functions of the installed NCCL headers, handed on to the real NCCL.  Made by dropin/nccl_forward.py. */
"""
INCLUDES = """#include "dropin/nccl_call.h"
"""
# What a function returns that cannot be handed on; nothing where it returns nothing.
MISSING = {"ncclResult_t": "missing", "const char*": '"NCCL was not found, or is older than the program"',
           "int": "0", "void": None}


def declarations(text):
    """(result, name, [parameter types and names]) of each function of NCCL."""
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
    text = re.sub(r"\b(?:extern|__inline__|__inline)\b", " ", text)
    found = {}
    for result, name, inside in re.findall(r"(?:^|[;}])\s*([\w \t\n*]+?)\s*\b(p?nccl\w+)\s*\(([^(){}]*)\)\s*;", text):
        if "inline" in result.split():
            continue
        parameters = [" ".join(p.split()) for p in inside.split(",") if p.strip() not in ("", "void")]
        named = []
        for i, p in enumerate(parameters):
            unnamed = p.endswith("*") or len(p.replace("const", " ").split()) == 1
            named.append((f"{p} a{i}", f"a{i}") if unnamed else (p, re.search(r"(\w+)$", p).group(1)))
        found[name] = (re.sub(r"\s*\*", "*", " ".join(result.split())), named)
    return found


def includes(headers):
    return "".join(f"#include <{h}>\n" for h in headers.split(",") if h)


def preprocessed(compiler, headers):
    return subprocess.run(compiler + ["-E", "-P", "-x", "c", "-"], input=includes(headers), capture_output=True,
                          text=True, check=True).stdout


def any_pointers(result, parameters):
    return result, [(f"void *{n}" if "*" in p else p, n) for p, n in parameters]


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
    output, entries, headers, read, compiler = *sys.argv[1:5], sys.argv[5:]
    declared = {name: any_pointers(*what)
                for name, what in declarations(preprocessed(compiler, headers + "," + read)).items()}
    declared.update(declarations(preprocessed(compiler, headers)))
    names = sorted({name.removeprefix("p") for name in declared})
    with open(entries, encoding="utf-8") as f:
        taken = set(re.findall(r"^ncclResult_t (nccl\w+)\(", f.read(), re.M))
    with open(output, "w", encoding="utf-8") as f:
        f.write(HEAD + includes(headers) + INCLUDES)
        for name in names:
            result, parameters = declared.get(name) or declared["p" + name]
            f.write("\n" + definition(name, result, parameters))
            if name not in taken:
                f.write(alias(name, result, parameters))


main()
