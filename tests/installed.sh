#!/bin/sh
# What a user gets from "meson install": headers that compile alone, symbols that are the public ones and no more, a
# pkg-config file that builds a program outside the tree as C99 and as C++17.  Prints TAP.
#
#     installed.sh BUILD_FOLDER SOURCE_FOLDER CC CXX
build=$1
source=$2
cc=$3
cxx=$4
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
count=0
failed=0

# check SENTENCE COMMAND...: one line of TAP; what the command prints is shown when it fails.
check() {
    sentence=$1
    shift
    count=$((count + 1))
    if "$@" >"$work/output" 2>&1; then
        echo "ok $count - $sentence"
    else
        echo "not ok $count - $sentence"
        sed 's/^/# /' "$work/output"
        failed=$((failed + 1))
    fi
}

exports_match() {
    library=$(find "$work/root" -name 'libqccl.so' | head -1)
    nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' | sort >"$work/exported"
    {
        cat "$source/tests/exports.txt"
        find "$work/root" -name qccl_mpi.h | sed 's/.*/qcclCommInitMpi/'
    } | sort >"$work/expected"
    diff "$work/expected" "$work/exported"
}

documented() {
    missing=0
    while read -r name; do
        cat "$source"/include/qccl/qccl.h "$source"/include/qccl/qccl_training.h | grep -q "\\b$name(" ||
            { echo "$name is in neither header"; missing=1; }
    done <"$source/tests/exports.txt"
    return $missing
}

alone() {
    compiler=$1
    standard=$2
    language=$3
    printf '#include <qccl/qccl.h>\nint main(void) { return sizeof(qcclConfig_t) == 0; }\n' >"$work/alone.$language"
    # shellcheck disable=SC2086
    $compiler -std="$standard" -Wall -Wextra -Wpedantic -Werror -Wundef -fsyntax-only -I"$include" \
        "$work/alone.$language" &&
        ! $compiler -std="$standard" -M -I"$include" "$work/alone.$language" | grep -E 'mpi\.h|cuda|nccl\.h'
}

consumer() {
    compiler=$1
    standard=$2
    language=$3
    cp "$source/tests/consumer.c" "$work/consumer.$language"
    # shellcheck disable=SC2046,SC2086
    $compiler -std="$standard" -Wall -Wextra -Werror -o "$work/consumer" "$work/consumer.$language" \
        $(pkg-config --cflags --libs qccl) -pthread &&
        LD_LIBRARY_PATH=$(dirname "$(find "$work/root" -name 'libqccl.so' | head -1)") "$work/consumer"
}

check "meson install works" env DESTDIR="$work/root" meson install -C "$build" --no-rebuild
include=$(dirname "$(dirname "$(find "$work/root" -name qccl.h | head -1)")")
PKG_CONFIG_PATH=$(dirname "$(find "$work/root" -name qccl.pc | head -1)")
PKG_CONFIG_SYSROOT_DIR=$work/root
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
check "the library exports the public symbols and no others" exports_match
check "every exported symbol is declared in the public header" documented
check "the public header compiles alone as C99, without MPI or CUDA" alone "$cc" c99 c
check "the public header compiles alone as C11" alone "$cc" c11 c
check "the public header compiles alone as C++17, without MPI or CUDA" alone "$cxx" c++17 cpp
check "pkg-config knows the version of the header" test "$(pkg-config --modversion qccl)" = \
    "$(sed -n 's/^#define QCCL_\(MAJOR\|MINOR\|PATCH\) //p' "$include/qccl/qccl.h" | paste -sd.)"
check "a C99 program outside the tree builds with pkg-config and runs" consumer "$cc" gnu99 c
check "a C++17 program outside the tree builds with pkg-config and runs" consumer "$cxx" gnu++17 cpp
check "the licence and the documents are there" test -f "$source/LICENSE" -a -f "$source/README.md"
echo "1..$count"
[ "$failed" = 0 ]
