"""The largest difference between the outputs of exported PyTorch modules and MXNet, by model.

    python benchmarks/torch_export.py

Needs PyTorch, which is not a dependency of fedmx: `pip install torch` first. FEDMX_DATA names the
folder of the real data sets; without it the benchmark uses other digits and random words. The exit
code is 1 if a difference is above 1e-5.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from layers.compute.engines.mxnet.to_torch import torch_state  # noqa: E402
from tests.compute.engines.exported_models import MODELS, trained  # noqa: E402

import torch  # isort: skip  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

BAR = 1e-5


def difference(key: str) -> float:
    """Return the largest difference of any output, from a file as a user loads it."""
    model = trained(key, os.environ.get("FEDMX_DATA", ""))
    module, state = torch_state(model.engine.definition, model.values)
    names: dict = {}
    exec(module.source, names)  # noqa: S102
    loaded = names["Model"]()
    with tempfile.TemporaryDirectory() as folder:
        save_file(state, f"{folder}/model.safetensors", {"format": "pt"})
        loaded.load_state_dict(load_file(f"{folder}/model.safetensors"))
    loaded.eval()
    with torch.no_grad():
        outputs = loaded(torch.from_numpy(model.x)).numpy()
    return float(abs(outputs - model.outputs).max())


def main() -> None:
    """Print a line for each model."""
    worst = 0.0
    for key in MODELS:
        if key.startswith("gluoncv"):
            continue  # gluoncv refuses to be imported beside PyTorch 2
        found = difference(key)
        worst = max(worst, found)
        print(f"{key:20} {found:.1e}", flush=True)
    print(f"torch {torch.__version__}: largest difference {worst:.1e}")
    sys.exit(worst > BAR)


if __name__ == "__main__":
    main()
