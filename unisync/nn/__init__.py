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
from unisync.nn import initializers as initializers
from unisync.nn.activations import (
    ELU as ELU,
    GELU as GELU,
    LeakyReLU as LeakyReLU,
    ReLU as ReLU,
    Sigmoid as Sigmoid,
    SiLU as SiLU,
    Softmax as Softmax,
    Softplus as Softplus,
    Tanh as Tanh,
)
from unisync.nn.attention import (
    MultiHeadAttention as MultiHeadAttention,
    TransformerBlock as TransformerBlock,
)
from unisync.nn.containers import (
    Residual as Residual,
    Sequential as Sequential,
)
from unisync.nn.convolution import (
    AvgPool2d as AvgPool2d,
    Conv1d as Conv1d,
    Conv2d as Conv2d,
    MaxPool2d as MaxPool2d,
)
from unisync.nn.dense import (
    Embedding as Embedding,
    Linear as Linear,
    PositionalEmbedding as PositionalEmbedding,
)
from unisync.nn.layer import Layer as Layer
from unisync.nn.normalization import (
    BatchNorm as BatchNorm,
    GroupNorm as GroupNorm,
    LayerNorm as LayerNorm,
    RMSNorm as RMSNorm,
)
from unisync.nn.recurrent import (
    GRU as GRU,
    LSTM as LSTM,
)
from unisync.nn.regularization import Dropout as Dropout
from unisync.nn.shaping import (
    Flatten as Flatten,
    Function as Function,
    Mean as Mean,
)
from unisync.nn.torch_format import (
    from_torch_state_dict as from_torch_state_dict,
    to_torch_state_dict as to_torch_state_dict,
)
