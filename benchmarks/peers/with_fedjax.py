"""FedJAX: `fed_avg.federated_averaging` with the jit or the pmap backend.

    /tmp/peers/fedjax/bin/python benchmarks/peers/with_fedjax.py --model lenet5

Images are (28, 28, 1), as in JAX's convolutions; so the inputs of LeNet-5's first dense layer
have another order than in the other contenders, with the same sizes.
"""

from __future__ import annotations

from importlib.metadata import version

import fedjax
import jax
from fedjax.algorithms import fed_avg
from jax.example_libraries import stax
from work import (
    BATCH,
    CLASSES,
    CLIENTS,
    COHORT,
    EPOCHS,
    RATE,
    Clock,
    arguments,
    client_data,
)


def build(model: str) -> fedjax.Model:
    """Return the model with the same layers as in fedmx."""
    if model == "2nn":
        layers = [stax.Flatten, stax.Dense(128), stax.Relu, stax.Dense(64), stax.Relu]
    else:
        layers = [
            stax.Conv(6, (5, 5), padding="SAME"),
            stax.Relu,
            stax.MaxPool((2, 2), strides=(2, 2)),
            stax.Conv(16, (5, 5), padding="VALID"),
            stax.Relu,
            stax.MaxPool((2, 2), strides=(2, 2)),
            stax.Flatten,
            stax.Dense(120),
            stax.Relu,
            stax.Dense(84),
            stax.Relu,
        ]
    init, apply = stax.serial(*layers, stax.Dense(CLASSES))

    def loss(batch: dict, logits: jax.Array) -> jax.Array:
        return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)

    return fedjax.create_model_from_stax(
        init, apply, sample_shape=(-1, 28, 28, 1), train_loss=loss, eval_metrics={}
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--backend", choices=("jit", "pmap"), default="jit")
    options = parser.parse_args()
    clock = Clock(options.rounds)
    fedjax.set_for_each_client_backend(options.backend)
    data = {}
    for client in range(CLIENTS):
        images, labels = client_data(client)
        data[str(client).encode()] = {"x": images[..., None], "y": labels.astype("int32")}
    clients = fedjax.client_samplers.UniformGetClientSampler(
        fedjax.InMemoryFederatedData(data), COHORT, seed=0
    )
    model = build(options.model)
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(RATE),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=EPOCHS),
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    for number in range(clock.rounds):
        clients.set_round_num(number)
        state, _ = algorithm.apply(state, clients.sample())
        jax.block_until_ready(state.params)
        clock.tick()
    parameters = sum(leaf.size for leaf in jax.tree_util.tree_leaves(state.params))
    release = f"{version('fedjax')} (jax {jax.__version__})"
    clock.report("fedjax", release, options.model, parameters)


if __name__ == "__main__":
    main()
