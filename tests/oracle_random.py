#!/usr/bin/env python3
"""Fresh random cases against the oracle: makes golden files with a new seed and lets the program golden_values
check them.

    oracle_random.py PATH/TO/golden_values [SEED]

The oracle is $QCCL_ORACLE, or ../shared/oracle/oracle.py beside the tree; where neither is there, the test is
skipped.  Prints TAP; the seed is in it, so that a failure can be repeated.
"""
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
import make  # noqa: E402


def main():
    try:
        oracle = make.load_oracle()
    except OSError:
        print("1..0 # SKIP no oracle at $QCCL_ORACLE or ../shared/oracle/oracle.py")
        return 0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().getrandbits(32)
    print(f"# seed {seed}: repeat with tests/oracle_random.py {sys.argv[1]} {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make.HERE = folder
        make.write_values(oracle, random.Random(seed), random.Random(seed + 1))
        run = subprocess.run([sys.argv[1], "--tap=/dev/stdout", "--quiet"], capture_output=True, text=True,
                             env=dict(os.environ, QCCL_GOLDEN=folder))
    lines = [line for line in run.stdout.splitlines() if line.startswith(("ok", "not ok"))]
    for line in run.stdout.splitlines() if run.returncode else []:
        print("# " + line)
    for number, line in enumerate(lines, 1):
        print(line.replace(" - ", f" {number} - fresh cases, seed {seed}: ", 1).split("  (")[0])
    print(f"{'not ok' if run.returncode or not lines else 'ok'} {len(lines) + 1} - golden_values accepts fresh cases")
    print(f"1..{len(lines) + 1}")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
