"""The papers' models that every engine builds alike: layers, names of tensors and initial values.

To add one, write a function that returns an `Architecture` and add it to `ARCHITECTURES`. Initial
values depend on the order of the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from layers.compute.engines.initial import draw_by_name
from layers.compute.errors import ComputeError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Flatten:
    """Makes a vector of each sample."""


@dataclass(frozen=True)
class Relu:
    """Rectified units."""


@dataclass(frozen=True)
class Dense:
    """A fully connected layer, whose input is flattened: `x weight.T + bias`."""

    units: int
    relu: bool = False


@dataclass(frozen=True)
class Convolution:
    """A square convolution of images (channels, height, width), with stride 1."""

    channels: int
    size: int
    padding: int = 0
    relu: bool = False


@dataclass(frozen=True)
class MaxPooling:
    """The maxima of squares that do not overlap; a rest at the edge is left out."""

    size: int = 2


@dataclass(frozen=True)
class Dropout:
    """Sets values to zero in training with the probability `rate`, and scales the others.

    Attributes:
        rate: the probability.
        channels: whether whole channels are set to zero.
    """

    rate: float
    channels: bool = False


Layer = Flatten | Relu | Dense | Convolution | MaxPooling | Dropout


@dataclass(frozen=True)
class Architecture:
    """A model as a sequence of layers; a tensor is called after its layer's number: "0.weight".

    Attributes:
        layers: the layers in order.
    """

    layers: tuple[Layer, ...]

    def shapes(self, example_shape: Shape) -> dict[str, Shape]:
        """Return the shape of each parameter for inputs of a shape, without the batch.

        Raises:
            ComputeError: the layers do not take such inputs.
        """
        found: dict[str, Shape] = {}
        shape = tuple(example_shape)
        for number, layer in enumerate(self.layers):
            if isinstance(layer, Dense):
                found[f"{number}.weight"] = (layer.units, prod(shape))
                found[f"{number}.bias"] = (layer.units,)
            elif isinstance(layer, Convolution) and len(shape) == 3:
                found[f"{number}.weight"] = (layer.channels, shape[0], layer.size, layer.size)
                found[f"{number}.bias"] = (layer.channels,)
            shape = output_shape(layer, shape)
            if prod(shape) == 0:
                raise ComputeError(
                    f"the model does not take inputs of shape {tuple(example_shape)}: nothing is "
                    f"left after layer {number}"
                )
        return found

    def outputs(self, example_shape: Shape) -> Shape:
        """Return the shape of the output of one sample."""
        shape = tuple(example_shape)
        for layer in self.layers:
            shape = output_shape(layer, shape)
        return shape


def output_shape(layer: Layer, shape: Shape) -> Shape:
    """Return the shape of a layer's output for one sample of a shape.

    Raises:
        ComputeError: the layer is for images, and the sample is none.
    """
    match layer:
        case Flatten():
            return (prod(shape),)
        case Dense(units=units):
            return (units,)
        case Convolution() | MaxPooling() if len(shape) != 3:
            raise ComputeError(
                f"the model does not take inputs of shape {shape}: its layers need images of shape "
                "(channels, height, width)"
            )
        case Convolution(channels=channels, size=size, padding=padding):
            return (channels, *(max(0, side + 2 * padding - size + 1) for side in shape[1:]))
        case MaxPooling(size=size):
            return (shape[0], *(side // size for side in shape[1:]))
        case _:
            return shape


def initial_values(shapes: Mapping[str, Shape], seed: int) -> dict[str, np.ndarray]:
    """Return the initial value, float32, of each parameter of an architecture, by its name."""
    return {
        name: draw_by_name(name, name, shape, seed, index)
        for index, (name, shape) in enumerate(shapes.items())
    }


def two_nn(classes: int = 10, hidden: tuple[int, int] = (128, 64)) -> Architecture:
    """Return 784-128-64-10 for inputs (1, 28, 28); other inputs are flattened, too.

    Two hidden layers of rectified units; 109,386 parameters.
    """
    return Architecture((Flatten(), *(Dense(units, relu=True) for units in hidden), Dense(classes)))


def two_nn_mcmahan(classes: int = 10) -> Architecture:
    """Return 784-200-200-10 for inputs (1, 28, 28), with rectified units; 199,210 parameters.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", 2017, section 3.
    """
    return two_nn(classes, hidden=(200, 200))


def logistic(classes: int = 10) -> Architecture:
    """Return multinomial logistic regression, for inputs of any shape: one dense layer.

    The loss is convex in its weights. This is the model of FedProx (Li et al., "Federated
    Optimization in Heterogeneous Networks", 2020, section 5.1) for the data set `synthetic`; 610
    parameters on 60 inputs.
    """
    return Architecture((Flatten(), Dense(classes)))


def lenet5(classes: int = 10, padding: int = 2) -> Architecture:
    """Return LeNet-5 for inputs (1, 28, 28); `padding` 0 is for inputs of 32x32.

    LeCun et al. 1998, with rectified units and max pooling; 61,706 parameters.
    """
    return Architecture(
        (
            Convolution(6, 5, padding=padding, relu=True),
            MaxPooling(),
            Convolution(16, 5, relu=True),
            MaxPooling(),
            Flatten(),
            Dense(120, relu=True),
            Dense(84, relu=True),
            Dense(classes),
        )
    )


def cnn3(classes: int = 10) -> Architecture:
    """Return the network of three 3 x 3 convolutions; 356,298 parameters for 10 classes.

    Convolutions of 32, 64 and 64 channels without padding, each with ReLU, the first two with max
    pooling by 2; a dense layer of 512 with ReLU, and one of `classes`. This is a reconstruction:
    the paper on projected sparse ternary compression only gives three convolutions and 1.36 MB.
    """
    return Architecture(
        (
            Convolution(32, 3, relu=True),
            MaxPooling(),
            Convolution(64, 3, relu=True),
            MaxPooling(),
            Convolution(64, 3, relu=True),
            Dense(512, relu=True),
            Dense(classes),
        )
    )


def vgg11s(classes: int = 10) -> Architecture:
    """Return VGG11* for inputs (3, 32, 32): eight convolutions, 865,482 parameters.

    Convolutions of 3 x 3 with padding and ReLU, in groups that max pooling by 2 follows; dense
    layers of 128, 128 and `classes`. Neither batch normalisation nor dropout.
    Source: Sattler et al., "Robust and Communication-Efficient Federated Learning from Non-IID
    Data", 2019, section VI.
    """
    layers: list[Layer] = []
    for group in ((32,), (64,), (128, 128), (128, 128), (128, 128)):
        layers += [Convolution(channels, 3, padding=1, relu=True) for channels in group]
        layers.append(MaxPooling())
    return Architecture((*layers, Dense(128, relu=True), Dense(128, relu=True), Dense(classes)))


def knapsack_cnn(classes: int = 10, dropout: float = 0.5) -> Architecture:
    """Return two convolutions and two dense layers for inputs (1, 28, 28); 21,840 parameters.

    Convolution of 10 channels, 5 x 5, max pooling by 2, ReLU; convolution of 20, dropout of whole
    channels, pooling, ReLU; dense layer of 50, ReLU, dropout; dense layer of `classes`. Layers and
    sizes are those of the paper on client selection as a knapsack problem; both dropout rates are
    the usual ones for this network.
    """
    return Architecture(
        (
            Convolution(10, 5),
            MaxPooling(),
            Relu(),
            Convolution(20, 5),
            Dropout(dropout, channels=True),
            MaxPooling(),
            Relu(),
            Dense(50, relu=True),
            Dropout(dropout),
            Dense(classes),
        )
    )


ARCHITECTURES: dict[str, Callable[..., Architecture]] = {
    "2nn": two_nn,
    "2nn-mcmahan": two_nn_mcmahan,
    "logistic": logistic,
    "lenet5": lenet5,
    "cnn3": cnn3,
    "vgg11s": vgg11s,
    "knapsack-cnn": knapsack_cnn,
}
"""The models that every engine has, by name."""
