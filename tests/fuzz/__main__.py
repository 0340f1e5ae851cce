"""Coverage-guided fuzzing with atheris: `make fuzz`, or

    python -m tests.fuzz [TARGET ...] [--runs 100000] [--seconds 600] [--keep FOLDER]

Each target runs in its own process and starts with its corpus. An input that violates an invariant
ends it, and is written to FOLDER: add it to the corpus as `found-...` when the bug is fixed. Inputs
that reach new code stay in FOLDER for the next run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
INSTRUMENTED = [
    "layers.network",
    "layers.logic.compression",
    "fedmx.run",
    "fedmx.protocol",
    "fedmx.history.pack",
    "zipfile",
]
LONGEST_INPUT = 4096
SECONDS_AN_INPUT = 10
MEMORY_MIB = 1024


def main() -> None:
    """Fuzz the named targets, or all of them, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--runs", type=int, default=100_000, help="executions of each target")
    parser.add_argument("--seconds", type=int, default=0, help="at most, for each; 0: no limit")
    parser.add_argument("--keep", type=Path, default=Path("fuzzing"), help="the folder for finds")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _fuzz(options.one, options.runs, options.seconds, options.keep / options.one)
        return
    names = options.targets or sorted(path.name for path in (HERE / "corpus").iterdir())
    broken = []
    for name in names:
        print(f"{name}: {options.runs:,} executions", flush=True)
        begun = time.monotonic()
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--runs", str(options.runs)]
        command += ["--seconds", str(options.seconds), "--keep", str(options.keep)]
        if subprocess.run(command).returncode:
            broken.append(name)
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    if broken:
        sys.exit(f"failed: {', '.join(broken)}; the inputs are in {options.keep}")


def _fuzz(name: str, runs: int, seconds: int, folder: Path) -> None:
    """Fuzz one target; libFuzzer ends the process."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install -c constraints.txt atheris")
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    for path in (HERE / "corpus" / name).iterdir():
        target.accepts(path.read_bytes())  # loads everything that Python loads only once
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    arguments = [
        f"-runs={runs}",
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_INPUT}",
        f"-timeout={SECONDS_AN_INPUT}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-verbosity=0",
        str(folder / "corpus"),
        str(HERE / "corpus" / name),
    ]
    atheris.Setup([sys.argv[0], *arguments], target.accepts)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
