"""The models that an experiment on MXNet can name: those of the papers, and the model zoos.

Most are in `layers.compute.engines.architectures`. To add one that needs more of Gluon, write a
function that builds a block and add it to `MODELS`. A function only builds a block, and imports
mxnet when it is called. Initial values depend on the order of the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from layers.compute.engines.architectures import (
    ARCHITECTURES,
    Architecture,
    Convolution,
    Dense,
    Dropout,
    Flatten,
    MaxPooling,
    Relu,
)
from layers.compute.engines.mxnet.lstm import lstm
from layers.compute.engines.mxnet.model_zoo import ZOOS
from layers.compute.errors import ComputeError, unknown


def resnet18_cifar(classes: int = 10) -> Any:
    """Return ResNet-18 for inputs (3, 32, 32); 11,173,962 parameters.

    A stem of one 3 x 3 convolution of 64 channels with batch normalisation and ReLU, no pooling;
    four stages of two basic blocks, which halve the image except in the first; global average
    pooling; a dense layer. Running statistics (9,600 numbers) are not among the parameters.
    Source: He et al., "Deep Residual Learning for Image Recognition", 2016.
    """
    from mxnet.gluon import nn
    from mxnet.gluon.model_zoo.vision import BasicBlockV1

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(64, kernel_size=3, padding=1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
    )
    before = 64
    for channels in (64, 128, 256, 512):
        stride = 1 if channels == before else 2
        net.add(BasicBlockV1(channels, stride, downsample=stride > 1, in_channels=before))
        net.add(BasicBlockV1(channels, 1, in_channels=channels))
        before = channels
    net.add(nn.GlobalAvgPool2D(), nn.Dense(classes))
    return net


MODELS: dict[str, Callable[..., Any]] = {
    **ARCHITECTURES,
    "resnet18-cifar": resnet18_cifar,
    "lstm": lstm,
}


def build_model(name: str, **settings: Any) -> Callable[[], Any]:
    """Return a function that builds a model: a name in `MODELS`, `gluon:NAME` or `gluoncv:NAME`.

    Raises:
        ComputeError: the model does not exist. A zoo's names are checked when the model is built.
    """
    zoo, colon, member = name.partition(":")
    if colon and zoo in ZOOS:
        return partial(ZOOS[zoo], member, **settings)
    if name in MODELS:
        return partial(_built, MODELS[name], **settings)
    names = [*MODELS, *(f"{zoo}:NAME" for zoo in ZOOS)]
    raise ComputeError(unknown("model", name, names))


def _built(model: Callable[..., Any], /, **settings: Any) -> Any:
    return as_block(model(**settings))


def as_block(model: Any) -> Any:
    """Return an architecture as a block with its layers; any other model as it is."""
    if not isinstance(model, Architecture):
        return model
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    for layer in model.layers:
        match layer:
            case Flatten():
                net.add(nn.Flatten())
            case Relu():
                net.add(nn.Activation("relu"))
            case Dense(units=units, relu=relu):
                net.add(nn.Dense(units, activation="relu" if relu else None))
            case Convolution(channels=channels, size=size, padding=padding, relu=relu):
                act = "relu" if relu else None
                net.add(nn.Conv2D(channels, size, padding=padding, activation=act))
            case MaxPooling(size=size):
                net.add(nn.MaxPool2D(size))
            case Dropout(rate=rate, channels=whole):
                net.add(nn.Dropout(rate, axes=(2, 3) if whole else ()))
    return net
