"""Optimizers: `init` and a pure `update`, joined by `chain`."""

from unisync.optim import schedules as schedules
from unisync.optim.base import (
    Transform as Transform,
    apply_updates as apply_updates,
    chain as chain,
    identity as identity,
)
from unisync.optim.groups import freeze as freeze, partition as partition
from unisync.optim.moments import (
    scale_by_adagrad as scale_by_adagrad,
    scale_by_adam as scale_by_adam,
    scale_by_lion as scale_by_lion,
    scale_by_rms as scale_by_rms,
    trace as trace,
)
from unisync.optim.recipes import (
    adagrad as adagrad,
    adam as adam,
    adamw as adamw,
    by_name as by_name,
    lamb as lamb,
    lion as lion,
    rmsprop as rmsprop,
    sgd as sgd,
)
from unisync.optim.scaling import (
    add_decayed_weights as add_decayed_weights,
    clip_by_global_norm as clip_by_global_norm,
    clip_by_value as clip_by_value,
    scale as scale,
    scale_by_learning_rate as scale_by_learning_rate,
    scale_by_trust_ratio as scale_by_trust_ratio,
)
from unisync.optim.schedules import (
    constant as constant,
    cosine as cosine,
    exponential as exponential,
    piecewise as piecewise,
    warmup_cosine as warmup_cosine,
)
