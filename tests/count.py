#!/usr/bin/env python3
"""Counts what meson's test runs say: one line "PASSED FAILED SKIPPED" over all logs named on the command line.

A log is the path without its ending: PATH.junit.xml holds the checks of TAP programs one by one, PATH.json the
verdict on each program.
A program that failed although none of its checks did (a crash, a time-out, a leak at its end) counts as one failure.
A log that is not there counts as one failure.  With --names the failures are listed first.
"""
import json
import sys
import xml.etree.ElementTree as xml


def count_log(path, names):
    passed = failed = skipped = 0
    failed_programs = set()
    for suite in xml.parse(path + ".junit.xml").getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            label = case.get("name")
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                names.append(f"{path}: {suite.get('name')}: {label}")
                failed_programs |= {suite.get("name").split(" / ")[-1], label.split(" / ")[-1]}
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    with open(path + ".json") as f:
        for line in f:
            test = json.loads(line)
            short = test["name"].split(" / ")[-1]
            if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL") and short not in failed_programs:
                failed += 1
                names.append(f"{path}: {short}: {test['result']}")
    return passed, failed, skipped


def main():
    names, total = [], [0, 0, 0]
    for path in (a for a in sys.argv[1:] if not a.startswith("--")):
        try:
            one = count_log(path, names)
        except (OSError, xml.ParseError, ValueError) as error:
            names.append(f"{path}: no log ({error})")
            one = (0, 1, 0)
        total = [a + b for a, b in zip(total, one)]
    if "--names" in sys.argv:
        for name in names:
            print("FAILED " + name)
    print(*total)


if __name__ == "__main__":
    main()
