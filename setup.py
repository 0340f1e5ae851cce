"""What fedmx is called, what it needs and what it installs."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
RAY = "ray>=2.40"
# Where MXNet 1.9.1 has a wheel; elsewhere fedmx has its other engines. The wheel asks for numpy
# below 2, which has no wheel for Python 3.13: pip could not install the two. There, MXNet comes by
# `pip install --no-deps mxnet==1.9.1`.
MXNET_WHEELS = (
    "(sys_platform == 'linux' and (platform_machine == 'x86_64' or platform_machine == 'aarch64'))"
    " or (sys_platform == 'darwin' and platform_machine == 'x86_64')"
)
MLFLOW = "mlflow-skinny>=2.9"
ONNX = "onnx>=1.16"
DP_ACCOUNTING = "dp-accounting>=0.6"
PANDAS = "pandas>=1.5"
TABLE = ["pandas>=2", "pyarrow>=15,<26"]  # older ones read pickles, newer ones need numpy 2
HUGGING_FACE = "datasets>=4"  # the first that runs no code of a data set
PILLOW = "pillow>=9.5"
TORCH = "torch>=2.1"
PROMETHEUS = "prometheus-client>=0.20"
PAGE = ["starlette>=0.40", "uvicorn>=0.30"]
WANDB = "wandb>=0.19.11"  # the first with reinit="create_new"


def version() -> str:
    """The version that `fedmx/version.py` gives, read without importing fedmx and what it needs."""
    text = (HERE / "fedmx" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit('fedmx/version.py: no line `__version__ = "..."`; restore it')
    return found.group(1)


def long_description() -> str:
    """What the README begins with, without pictures and links to files, which a wheel lacks."""
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    text = "## ".join(re.split(r"^## ", text, maxsplit=2, flags=re.MULTILINE)[:2])
    text = re.sub(
        r"<picture>.*?</picture>\n|^<!--.*?-->\n", "", text, flags=re.DOTALL | re.MULTILINE
    )
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


setup(
    name="fedmx",
    version=version(),
    description="Federated learning for MXNet/Gluon, simulated or deployed with the same bits",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="The fedmx developers",
    keywords="federated learning, MXNet, Gluon, reproducibility, communication efficiency",
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(include=["fedmx", "fedmx.*", "layers", "layers.*"]),
    package_data={
        "": ["py.typed", "*.pyi", "*.html", "*.css", "*.js", "*.svg", "*.yaml", "*.json"],
        "fedmx.new": ["templates/*/*.template"],
        "fedmx.federation": ["templates/*.template"],
    },
    python_requires=">=3.10,<3.14",
    install_requires=[
        f"mxnet==1.9.1; python_version < '3.13' and ({MXNET_WHEELS})",
        "graphviz>=0.8.1,<0.9",  # this and `requests` are what else MXNet needs
        "requests>=2.20,<3",
        f"gluoncv>=0.10.5.post0,<0.11; {MXNET_WHEELS}",
        "numpy>=1.21,<3",
        "scikit-learn",
        "scipy>=1.15",  # the first whose bootstrap takes `rng`
        "threadpoolctl",
        "PyYAML>=6",
        "annotated-types>=0.6",
        "pydantic>=2",
        "msgpack>=1",
        "blake3>=1",
        "safetensors",
        "cryptography>=42",
        "typer>=0.29",
        "rich",
        "matplotlib",
        "tensorboard",
        "tqdm",
    ],
    extras_require={
        "docs": [
            "mkdocs>=1.6,<2",
            "mkdocs-material>=9.7",
            "mkdocstrings-python>=2",
            "latex2mathml>=3.78",
        ],
        "export": [ONNX],
        "huggingface": [HUGGING_FACE, PILLOW, *TABLE],
        "images": [PILLOW],
        "fuzz": ["atheris>=3"],
        "metrics": [PROMETHEUS],
        "mlflow": [MLFLOW],
        "page": PAGE,
        "pandas": [PANDAS],
        "privacy": [DP_ACCOUNTING],
        "ray": [RAY],
        "table": TABLE,
        "torch": [TORCH],
        "wandb": [WANDB],
        "test": [
            "pytest>=8",
            "pytest-timeout",
            "pytest-xdist>=3.7",
            "hypothesis",
            "jsonschema>=4",
            "greenlet",
            "psutil",
            "ruff",
            "mypy",
            "types-PyYAML",
            RAY,
            ONNX,
            *TABLE,
            HUGGING_FACE,
            PILLOW,
            PROMETHEUS,
            *PAGE,
            MLFLOW,
            WANDB,
            DP_ACCOUNTING,
            "ipykernel",
            "nbclient",
            "nbformat",
            "onnxruntime>=1.18",
        ],
    },
    entry_points={"console_scripts": ["fedmx = fedmx.cli:main"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
