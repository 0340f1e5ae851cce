#!/bin/sh
# What a GPU gains, as one table, in about 8 minutes: benchmarks/gpu.sh [--dry-run].
#
# It needs Python 3.10 or newer, PyTorch with CUDA, and the packages that fedmx imports; it fetches
# nothing. Packages may be in build/gpu, which another machine fills:
#   pip install --target build/gpu --python-version 3.12 --only-binary=:all: \
#       annotated-types blake3 cryptography pydantic typing-inspection
# --dry-run: small sizes on the CPU. PYTHON: the interpreter. Exit codes: 1 a check failed; 2
# something is missing.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$PWD:$PWD/build/gpu" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" PYTHONUNBUFFERED=1
"$PYTHON" - <<'END' || exit 2
import importlib.util as found
import sys

needed = "annotated_types blake3 cryptography msgpack numpy pydantic rich safetensors threadpoolctl"
missing = [one for one in (*needed.split(), "torch", "yaml") if found.find_spec(one) is None]
if missing:
    sys.exit(f"gpu.sh: {sys.executable} has no {', '.join(missing)}")
END
if "$PYTHON" -c 'import hypothesis, pytest' 2>/dev/null; then
    timeout 120 "$PYTHON" -m pytest -q -p no:cacheprovider tests/compute/engines/test_torch.py -k device
fi
exec timeout 470 "$PYTHON" benchmarks/gpu.py "$@"
