"""How far is one rank's own gradient from the average of all?

    gradient_noise.py FOLDER...

A folder holds what qccl-gpt --dump-grads wrote: grad.rank0.f32 and so on, raw little-endian fp32.  Prints, for each
folder, the mean over ranks of |own - average| / |average|: the error of DUO's fast reduction at 0 bits.  Gradients
of N ranks that have nothing in common but noise give sqrt(N - 1).
"""
import array
import glob
import math
import os
import sys


def read(path):
    values = array.array("f")
    with open(path, "rb") as f:
        values.frombytes(f.read())
    if sys.byteorder == "big":
        values.byteswap()
    return values


def noise(folder):
    paths = glob.glob(os.path.join(glob.escape(folder), "grad.rank*.f32"))
    ranks = [read(p) for p in paths]
    if len(ranks) < 2 or len({len(r) for r in ranks}) != 1:
        raise ValueError(f"{folder}: needs grad.rank*.f32 of two ranks or more, of one size")
    average = [sum(x) / len(ranks) for x in zip(*ranks)]
    energy = sum(a * a for a in average)
    errors = [math.sqrt(sum((x - a) ** 2 for x, a in zip(r, average)) / energy) for r in ranks]
    return sum(errors) / len(errors)


def main(folders):
    if not folders or folders[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if folders else 2
    for folder in folders:
        try:
            print(f"{folder}\t{noise(folder):.3f}")
        except (OSError, ValueError, ZeroDivisionError) as error:
            print(f"gradient_noise.py: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
