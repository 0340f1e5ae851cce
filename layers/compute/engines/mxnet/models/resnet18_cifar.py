"""ResNet-18 for small images (He et al. 2016): no pooling in the stem; 11,173,962 parameters."""

from __future__ import annotations

from typing import Any

# Channels of the stages. Each has two basic blocks; all but the first halve the image.
STAGES = (64, 128, 256, 512)


def resnet18_cifar(classes: int = 10) -> Any:
    """Return ResNet-18 for inputs (3, 32, 32).

    A stem of one 3 x 3 convolution of 64 channels with batch normalisation and ReLU, no pooling;
    basic blocks; global average pooling; a dense layer. Running statistics (9,600 numbers) are not
    among the parameters. Source: He et al., "Deep Residual Learning for Image Recognition", 2016.
    """
    from mxnet.gluon import nn
    from mxnet.gluon.model_zoo.vision import BasicBlockV1

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(STAGES[0], kernel_size=3, padding=1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
    )
    before = STAGES[0]
    for channels in STAGES:
        stride = 1 if channels == before else 2
        net.add(BasicBlockV1(channels, stride, downsample=stride > 1, in_channels=before))
        net.add(BasicBlockV1(channels, 1, in_channels=channels))
        before = channels
    net.add(nn.GlobalAvgPool2D(), nn.Dense(classes))
    return net
