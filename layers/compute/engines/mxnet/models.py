"""The models that an experiment can name: those of the papers, and the model zoos.

To add one, write a function that builds a block and add it to `MODELS`. A function only builds a
block, and imports mxnet when it is called. Initial values depend on the order of the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from layers.compute.engines.mxnet.lstm import lstm
from layers.compute.engines.mxnet.model_zoo import ZOOS
from layers.compute.errors import ComputeError, unknown


def two_nn(classes: int = 10, hidden: tuple[int, int] = (128, 64)) -> Any:
    """Return 784-128-64-10 for inputs (1, 28, 28); other inputs are flattened, too.

    Two hidden layers of rectified units; 109,386 parameters.
    """
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(nn.Flatten())
    for units in hidden:
        net.add(nn.Dense(units, activation="relu"))
    net.add(nn.Dense(classes))
    return net


def two_nn_mcmahan(classes: int = 10) -> Any:
    """Return 784-200-200-10 for inputs (1, 28, 28), with rectified units; 199,210 parameters.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", 2017, section 3.
    """
    return two_nn(classes, hidden=(200, 200))


def logistic(classes: int = 10) -> Any:
    """Return multinomial logistic regression, for inputs of any shape: one dense layer.

    The loss is convex in its weights. This is the model of FedProx (Li et al., "Federated
    Optimization in Heterogeneous Networks", 2020, section 5.1) for the data set `synthetic`; 610
    parameters on 60 inputs.
    """
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(nn.Flatten(), nn.Dense(classes))
    return net


def lenet5(classes: int = 10, padding: int = 2) -> Any:
    """Return LeNet-5 for inputs (1, 28, 28); `padding` 0 is for inputs of 32x32.

    LeCun et al. 1998, with rectified units and max pooling; 61,706 parameters.
    """
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, kernel_size=5, padding=padding, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(16, kernel_size=5, activation="relu"),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dense(120, activation="relu"),
        nn.Dense(84, activation="relu"),
        nn.Dense(classes),
    )
    return net


def cnn3(classes: int = 10) -> Any:
    """Return the network of three 3 x 3 convolutions; 356,298 parameters for 10 classes.

    Convolutions of 32, 64 and 64 channels without padding, each with ReLU, the first two with max
    pooling by 2; a dense layer of 512 with ReLU, and one of `classes`. This is a reconstruction:
    the paper on projected sparse ternary compression only gives three convolutions and 1.36 MB.
    """
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(32, kernel_size=3, activation="relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Conv2D(64, kernel_size=3, activation="relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Conv2D(64, kernel_size=3, activation="relu"),
        nn.Dense(512, activation="relu"),
        nn.Dense(classes),
    )
    return net


def vgg11s(classes: int = 10) -> Any:
    """Return VGG11* for inputs (3, 32, 32): eight convolutions, 865,482 parameters.

    Convolutions of 3 x 3 with padding and ReLU, in groups that max pooling by 2 follows; dense
    layers of 128, 128 and `classes`. Neither batch normalisation nor dropout.
    Source: Sattler et al., "Robust and Communication-Efficient Federated Learning from Non-IID
    Data", 2019, section VI.
    """
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    for group in ((32,), (64,), (128, 128), (128, 128), (128, 128)):
        for channels in group:
            net.add(nn.Conv2D(channels, kernel_size=3, padding=1, activation="relu"))
        net.add(nn.MaxPool2D(pool_size=2, strides=2))
    net.add(nn.Dense(128, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(classes))
    return net


def knapsack_cnn(classes: int = 10, dropout: float = 0.5) -> Any:
    """Return two convolutions and two dense layers for inputs (1, 28, 28); 21,840 parameters.

    Convolution of 10 channels, 5 x 5, max pooling by 2, ReLU; convolution of 20, dropout of whole
    channels, pooling, ReLU; dense layer of 50, ReLU, dropout; dense layer of `classes`. Layers and
    sizes are those of the paper on client selection as a knapsack problem; both dropout rates are
    the usual ones for this network.
    """
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(10, kernel_size=5),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Activation("relu"),
        nn.Conv2D(20, kernel_size=5),
        nn.Dropout(dropout, axes=(2, 3)),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Activation("relu"),
        nn.Dense(50, activation="relu"),
        nn.Dropout(dropout),
        nn.Dense(classes),
    )
    return net


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
    "2nn": two_nn,
    "2nn-mcmahan": two_nn_mcmahan,
    "logistic": logistic,
    "lenet5": lenet5,
    "cnn3": cnn3,
    "vgg11s": vgg11s,
    "knapsack-cnn": knapsack_cnn,
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
        return partial(MODELS[name], **settings)
    names = [*MODELS, *(f"{zoo}:NAME" for zoo in ZOOS)]
    raise ComputeError(unknown("model", name, names))
