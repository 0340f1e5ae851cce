"""The engine on MXNet: a Gluon model on one flat vector.

This is the only room that imports mxnet; it knows no rounds and no clients.
"""
