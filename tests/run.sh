#!/bin/sh
# Builds the library in every way it is meant to be built and runs every test:
#
#   1. gcc, release: all suites, MPI and the programs included; the golden values once more on each row of kernels
#   2. clang, address and undefined-behaviour sanitizers: everything but MPI, then the fuzzers for half a minute
#   3. gcc, thread sanitizer: the race suite
#   4. AVX-512 rows emulated: kernels and golden values, on any processor
#   5. clang, release, no MPI: the library's own suites
#   6. valgrind: the race programs
#
# Installs what is missing from Debian.  Builds into build-test/, or $QCCL_TEST_BUILD.  The last line is "N passed, N
# failed"; the status is 0 only when nothing failed.  QCCL_TEST_ONLY="gcc clang ..." picks parts: gcc, asan, tsan,
# emulated, clang, valgrind.
set -u
cd "$(dirname "$0")/.." || exit 1
top=${QCCL_TEST_BUILD:-$(pwd)/build-test}
logs=""
broken=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

packages="meson ninja-build gcc g++ libc6-dev clang clang-format libclang-rt-14-dev pkg-config python3
libxxhash-dev libcriterion-dev libopenmpi-dev openmpi-bin libopenblas-dev zlib1g-dev dict-gcide gnuplot-nox
libsimde-dev valgrind binutils iproute2 libmpich-dev mpich gfortran python3-numpy python3-torch python3-mpi4py
scalapack-mpi-test"

say() {
    printf '%s %s\n' "$(date +%H:%M:%S)" "$*"
}

install_missing() {
    command -v dpkg-query >/dev/null || return 0
    missing=""
    for package in $packages; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    say "installing$missing"
    root=""
    [ "$(id -u)" = 0 ] || root=sudo
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    { $root apt-get -qq update && $root apt-get -qq -y --no-install-recommends install $missing; } \
        >/tmp/qccl-install.log 2>&1 || { tail -5 /tmp/qccl-install.log; return 1; }
}

wanted() {
    [ -z "${QCCL_TEST_ONLY:-}" ] && return 0
    case " $QCCL_TEST_ONLY " in *" $1 "*) return 0 ;; esac
    return 1
}

# build NAME OPTION...: configures build-test/NAME and builds it; CC and CXX choose the compiler.
build() {
    name=$1
    shift
    say "$name: building"
    mkdir -p "$top"
    if [ -f "$top/$name/build.ninja" ]; then
        set -- --reconfigure "$@"
    fi
    if meson setup "$top/$name" . "$@" >"$top/$name.setup.log" 2>&1 &&
        ninja -C "$top/$name" >"$top/$name.build.log" 2>&1; then
        return 0
    fi
    tail -30 "$top/$name.setup.log"
    [ -f "$top/$name.build.log" ] && grep -E -A8 'error|FAILED' "$top/$name.build.log" | head -60
    say "$name: does not build"
    broken=$((broken + 1))
    return 1
}

# check NAME LOG ARGUMENT...: runs meson test in build-test/NAME and keeps its log under LOG, or LOG-valgrind.
check() {
    name=$1
    log=$2
    shift 2
    kept=$log
    case " $* " in *" --wrapper "*) kept=$log-valgrind ;; esac
    say "$name: testing ($log)"
    rm -f "$top/$name/meson-logs/$kept.junit.xml" "$top/$name/meson-logs/$kept.json"
    meson test -C "$top/$name" --no-rebuild --print-errorlogs --logbase "$log" "$@" >"$top/$name.$log.log" 2>&1 ||
        sed -n '/^Summary of Failures/,$p' "$top/$name.$log.log"
    logs="$logs $top/$name/meson-logs/$kept"
    say "$name: $(python3 tests/count.py "$top/$name/meson-logs/$kept" |
        { read -r p f s && echo "$p passed, $f failed, $s skipped"; })"
}

if ! install_missing; then
    say "packages could not be installed"
    echo "0 passed, 1 failed"
    exit 1
fi

if wanted gcc || wanted valgrind; then
    if CC=gcc CXX=g++ build gcc -Dwerror=true; then
        if wanted gcc; then
            QCCL_TEST_REQUIRED=1 check gcc all --no-suite libfuzzer
            for row in c avx2; do
                QCCL_CPU=$row check gcc "golden-$row" golden_values
            done
        fi
        if wanted valgrind; then
            check gcc race --suite race --timeout-multiplier 5 \
                --wrapper 'valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite,possible'
        fi
    fi
fi

if wanted asan; then
    if CC=clang CXX=clang++ build asan -Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false \
        -Dmpi=disabled -Dfuzz=true -Dc_args=-fsanitize=fuzzer-no-link; then
        check asan all --no-suite lint --no-suite libfuzzer --timeout-multiplier 3
        check asan libfuzzer --suite libfuzzer
    fi
fi

if wanted tsan; then
    if CC=gcc CXX=g++ build tsan -Dbuildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false \
        -Dmpi=disabled -Dbench=disabled; then
        check tsan race --suite race --timeout-multiplier 5
    fi
fi

if wanted emulated; then
    if CC=gcc CXX=g++ build emulated -Davx512=emulated -Dmpi=disabled -Dbench=disabled; then
        check emulated kernels --suite kernels --suite golden --timeout-multiplier 3
    fi
fi

if wanted clang; then
    if CC=clang CXX=clang++ build clang -Dmpi=disabled -Dbench=disabled -Dwerror=true; then
        check clang unit --suite unit --suite thread --suite golden --suite kernels --suite fuzz
    fi
fi

# shellcheck disable=SC2086
python3 tests/count.py --names $logs | grep '^FAILED'
# shellcheck disable=SC2086
set -- $(python3 tests/count.py $logs)
failed=$(($2 + broken))
say "$3 skipped"
echo "$1 passed, $failed failed"
[ "$failed" = 0 ]
