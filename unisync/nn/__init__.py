"""Neural networks: the primitives (functions) and the layers (frozen recipes with plain-dict parameters)."""

from unisync.functional.elementwise import tanh as tanh
from unisync.functional.nn import (
    avg_pool2d as avg_pool2d,
    conv1d as conv1d,
    conv2d as conv2d,
    dropout as dropout,
    elu as elu,
    embedding as embedding,
    gelu as gelu,
    group_norm as group_norm,
    layer_norm as layer_norm,
    leaky_relu as leaky_relu,
    linear as linear,
    log_softmax as log_softmax,
    logsumexp as logsumexp,
    max_pool2d as max_pool2d,
    one_hot as one_hot,
    relu as relu,
    rms_norm as rms_norm,
    scaled_dot_product_attention as scaled_dot_product_attention,
    sigmoid as sigmoid,
    silu as silu,
    softmax as softmax,
    softmax_cross_entropy_with_integer_labels as softmax_cross_entropy_with_integer_labels,
    softplus as softplus,
)
