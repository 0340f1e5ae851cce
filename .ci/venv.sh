#!/bin/sh
# Makes .venv beside the code, with the exact versions of constraints.txt, or says in plain words
# what is missing. Does nothing when .venv is up to date. Run by `make`; PYTHON names the
# interpreter to use instead of looking for one.
# Exit codes: 0 ready, 2 something is missing.
set -u
cd "$(dirname "$0")/.." || exit 2

VENV=.venv
READY=$VENV/.ready
LOG=$VENV/install.log
# What pip's log says when there is no way to the package index.
UNREACHABLE='NewConnectionError|ConnectTimeout|ReadTimeout|NameResolutionError|ProxyError|SSLError'
UNREACHABLE="$UNREACHABLE|Connection(Error| refused| reset)|Network is unreachable|name resolution"

tell() { printf 'fedmx: %s\n' "$*" >&2; }
stop() {
    tell "$@"
    exit 2
}

# Settings of the user's own environment that would make pip install somewhere else.
unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_REQUIREMENT PIP_CONSTRAINT
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

# "3.11.7 /usr/bin/python3.11" for an interpreter that starts, nothing for one that does not
# (pyenv leaves such shims).
describe() {
    "$1" -c 'import sys; print("%d.%d.%d %s" % (sys.version_info[:3] + (sys.executable,)))' 2>/dev/null
}

right_version() {
    case $1 in 3.10.* | 3.11.* | 3.12.* | 3.13.*) true ;; *) false ;; esac
}

can_make_venvs() { "$1" -c 'import venv, ensurepip' 2>/dev/null; }

# Sets `python` and `version`, or stops.
find_python() {
    seen=
    without_venv=
    pyenv=${PYENV_ROOT:-${HOME:-}/.pyenv}/versions
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3.11 python3.10 python3.12 python3.13 python3 python \
            "$pyenv"/3.11*/bin/python "$pyenv"/3.10*/bin/python \
            "$pyenv"/3.12*/bin/python "$pyenv"/3.13*/bin/python
    fi
    for candidate in "$@"; do
        described=$(describe "$candidate") || continue
        version=${described%% *}
        python=${described#* }
        if ! right_version "$version"; then
            seen="$seen, $candidate is $version"
        elif ! can_make_venvs "$python"; then
            without_venv=${version%.*}
        else
            return 0
        fi
    done
    if [ -n "$without_venv" ]; then
        stop "Python $without_venv is here but cannot make virtual environments; install its venv module" \
            "(Debian, Ubuntu: apt-get install python$without_venv-venv)"
    elif [ -n "${PYTHON:-}" ]; then
        [ -n "$seen" ] && stop "PYTHON=$PYTHON is Python $version; fedmx needs 3.10 to 3.13"
        stop "PYTHON=$PYTHON does not start; name an interpreter of Python 3.10 to 3.13"
    fi
    seen=${seen#, }
    stop "no Python 3.10 to 3.13 found (looked for python3.10 to python3.13, python3, python and in $pyenv:" \
        "${seen:-none starts}); install one, or name it: make PYTHON=/path/to/python3.11"
}

# What .venv was made from: any difference means that it is to be brought up to date.
fingerprint() {
    cat setup.py constraints.txt pyproject.toml fedmx/version.py .ci/venv.sh | cksum
    printf '%s\n%s\n' "$PWD" "$1"
}

usable_venv() {
    described=$(describe "$VENV/bin/python") || return 1
    version=${described%% *}
    right_version "$version" || return 1
    [ -z "${PYTHON:-}" ] && return 0
    wanted=$(describe "$PYTHON")
    [ "${wanted%% *}" = "$version" ]
}

# Shows what pip does: on a terminal one line that changes, elsewhere every twentieth package.
progress() {
    if [ -t 2 ]; then
        printf '\r\033[Kfedmx: %s' "$2" >&2
    elif [ $(($1 % 20)) -eq 1 ]; then
        tell "$2"
    fi
}

# pip with all that it says in the log. Modules are compiled when they are first imported: compiling
# all of them takes pip most of its time.
run_pip() {
    found=0
    {
        "$VENV/bin/python" -m pip --no-color install --no-compile --progress-bar off -c constraints.txt "$@" 2>&1 ||
            echo 'pip failed'
    } | while IFS= read -r line; do
        printf '%s\n' "$line" >>"$LOG"
        case $line in
        Collecting*)
            found=$((found + 1))
            progress "$found" "package $found: ${line%% (*}"
            ;;
        Installing*) [ "$found" -eq 0 ] || progress 1 "unpacking $found packages" ;;
        esac
    done
    [ -t 2 ] && printf '\r\033[K' >&2
    [ "$(tail -1 "$LOG")" != 'pip failed' ]
}

# uv, which downloads and unpacks several packages at once, if it is there; otherwise pip. What uv
# cannot do, pip tries: it also reads pip's own settings of indexes and proxies.
install() {
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$VENV/bin/python" -c constraints.txt "$@" >>"$LOG" 2>&1 && return 0
        tell "uv could not install ($(tail -1 "$LOG")); trying pip"
    fi
    run_pip "$@"
}

# One line for the commonest reasons why pip fails; otherwise pip's own last words.
explain_pip() {
    if grep -q -i 'no space left on device' "$LOG"; then
        stop "the disk is full: the installation needs about 2 GB in $PWD/$VENV"
    elif grep -q -E "$UNREACHABLE" "$LOG"; then
        stop "pip could not reach the package index; check the network, or pip's proxy and index settings" \
            "(details: $LOG)"
    elif grep -q -E 'No matching distribution found for (mxnet|numpy)' "$LOG"; then
        stop "there is no MXNet 1.9.1 for this machine ($(uname -sm)): it is built for Linux on x86_64 (details: $LOG)"
    fi
    tell "pip could not install what fedmx needs (details: $LOG):"
    { grep -E '^ *(ERROR|error)' "$LOG" || grep -v '^pip failed' "$LOG"; } | tail -3 >&2
    exit 2
}

# A missing system library shows only when the package that needs it is loaded.
try_import() {
    said=$("$VENV/bin/python" -W ignore -c "import fedmx, $1" 2>&1 >/dev/null) && return 0
    library=$(printf '%s\n' "$said" | sed -n 's/.*: \(lib[^ :]*\): cannot open shared object.*/\1/p' | head -1)
    case $library in
    libgomp*) package=" (Debian, Ubuntu: apt-get install libgomp1)" ;;
    libstdc++*) package=" (Debian, Ubuntu: apt-get install libstdc++6)" ;;
    *) package= ;;
    esac
    if [ -n "$library" ]; then
        stop "$1 needs the system library $library, which is not installed; install it$package"
    fi
    stop "$1 is installed but does not load: $(printf '%s\n' "$said" | tail -1)"
}

has_mxnet() {
    "$VENV/bin/python" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("mxnet") is None)'
}

if usable_venv && [ "$(cat "$READY" 2>/dev/null)" = "$(fingerprint "$version")" ]; then
    exit 0
fi
rm -f "$READY"
# An environment whose making was interrupted may have no pip.
if ! usable_venv || ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    find_python
    rm -rf "$VENV"
    if ! said=$("$python" -m venv "$VENV" 2>&1); then
        rm -rf "$VENV"
        stop "$python -m venv $VENV failed: $(printf '%s\n' "$said" | tail -1)"
    fi
fi

tell "installing into $VENV for Python $version (once; downloads about 330 MB, fills about 2 GB)"
: >"$LOG"
command -v uv >/dev/null 2>&1 && tell "uv downloads and unpacks the packages"
install setuptools wheel || explain_pip
# MXNet's wheel asks for a numpy that Python 3.13 does not have, and works with the one that it has.
case $version in
3.13.*) install --no-deps mxnet || grep -q -E '(No matching distribution found for|Cannot install) mxnet' "$LOG" || explain_pip ;;
esac
# Without isolation the build uses the setuptools that constraints.txt names.
install --no-build-isolation -e '.[test,docs]' || explain_pip
if has_mxnet; then
    try_import mxnet
else
    tell "there is no MXNet for this machine ($(uname -sm)), so the engine is numpy: see docs/engines.md"
fi
fingerprint "$version" >"$READY"
