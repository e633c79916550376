"""unisync: write a model once, train it on NumPy, PyTorch, JAX or TensorFlow by flag.

Arrays are the framework's own: functions take and return native arrays and follow the backend of their arguments.
Importing this package imports no framework.
"""

from unisync import data as data, losses as losses, nn as nn, optim as optim, tree as tree
from unisync._dispatch import (
    backend as backend,
    current_backend as current_backend,
    is_array as is_array,
    namespace as namespace,
    set_backend as set_backend,
)
from unisync._per_replica import PerReplica as PerReplica
from unisync._types import (
    bfloat16 as bfloat16,
    bool as bool,
    complex64 as complex64,
    complex128 as complex128,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from unisync.distributed import World as World, init_distributed as init_distributed, spmd as spmd
from unisync.distributed.launch.function import launch as launch
from unisync.functional import random as random
from unisync.functional.collectives import (
    all_gather as all_gather,
    all_gather_object as all_gather_object,
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    allreduce as allreduce,
    barrier as barrier,
    broadcast as broadcast,
    broadcast_object as broadcast_object,
    permute as permute,
    recv as recv,
    reduce_scatter as reduce_scatter,
    replica_index as replica_index,
    send as send,
)
from unisync.functional.conversion import (
    block_until_ready as block_until_ready,
    convert as convert,
    device as device,
    from_dlpack as from_dlpack,
    to_device as to_device,
    to_numpy as to_numpy,
)
from unisync.functional.creation import (
    arange as arange,
    asarray as asarray,
    empty as empty,
    empty_like as empty_like,
    eye as eye,
    full as full,
    full_like as full_like,
    linspace as linspace,
    ones as ones,
    ones_like as ones_like,
    tril as tril,
    triu as triu,
    zeros as zeros,
    zeros_like as zeros_like,
)
from unisync.functional.dtypes import (
    astype as astype,
    dtype_of as dtype_of,
    finfo as finfo,
    iinfo as iinfo,
    isdtype as isdtype,
    result_type as result_type,
)
from unisync.functional.elementwise import (
    abs as abs,
    acos as acos,
    acosh as acosh,
    add as add,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    bitwise_and as bitwise_and,
    bitwise_invert as bitwise_invert,
    bitwise_left_shift as bitwise_left_shift,
    bitwise_or as bitwise_or,
    bitwise_right_shift as bitwise_right_shift,
    bitwise_xor as bitwise_xor,
    ceil as ceil,
    clip as clip,
    cos as cos,
    cosh as cosh,
    divide as divide,
    equal as equal,
    erf as erf,
    exp as exp,
    expm1 as expm1,
    floor as floor,
    floor_divide as floor_divide,
    greater as greater,
    greater_equal as greater_equal,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    less as less,
    less_equal as less_equal,
    log as log,
    log1p as log1p,
    log2 as log2,
    log10 as log10,
    logaddexp as logaddexp,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    logical_xor as logical_xor,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    negative as negative,
    not_equal as not_equal,
    positive as positive,
    pow as pow,
    reciprocal as reciprocal,
    remainder as remainder,
    round as round,
    rsqrt as rsqrt,
    sign as sign,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    square as square,
    subtract as subtract,
    tan as tan,
    tanh as tanh,
    trunc as trunc,
)
from unisync.functional.gradients import (
    grad as grad,
    jit as jit,
    recompute as recompute,
    scan as scan,
    stop_gradient as stop_gradient,
    value_and_grad as value_and_grad,
    vjp as vjp,
)
from unisync.functional.indexing import (
    take as take,
    take_along_axis as take_along_axis,
)
from unisync.functional.linear_algebra import (
    matmul as matmul,
    matrix_transpose as matrix_transpose,
    tensordot as tensordot,
    vecdot as vecdot,
)
from unisync.functional.manipulation import (
    broadcast_arrays as broadcast_arrays,
    broadcast_to as broadcast_to,
    concat as concat,
    expand_dims as expand_dims,
    flip as flip,
    moveaxis as moveaxis,
    permute_dims as permute_dims,
    repeat as repeat,
    reshape as reshape,
    roll as roll,
    squeeze as squeeze,
    stack as stack,
    tile as tile,
    unstack as unstack,
)
from unisync.functional.multi import (
    multi_add as multi_add,
    multi_addcdiv as multi_addcdiv,
    multi_addcmul as multi_addcmul,
    multi_all_finite as multi_all_finite,
    multi_divide as multi_divide,
    multi_lerp as multi_lerp,
    multi_mean_square as multi_mean_square,
    multi_multiply as multi_multiply,
    multi_norm as multi_norm,
    multi_scale as multi_scale,
    multi_shift as multi_shift,
    multi_sign as multi_sign,
    multi_sqrt as multi_sqrt,
    multi_where as multi_where,
)
from unisync.functional.searching import (
    argmax as argmax,
    argmin as argmin,
    count_nonzero as count_nonzero,
    nonzero as nonzero,
    searchsorted as searchsorted,
    where as where,
)
from unisync.functional.sorting import (
    argsort as argsort,
    sort as sort,
)
from unisync.functional.statistical import (
    cumulative_sum as cumulative_sum,
    max as max,
    mean as mean,
    min as min,
    prod as prod,
    std as std,
    sum as sum,
    var as var,
)
from unisync.functional.utility import (
    all as all,
    any as any,
)
from unisync.parallel import (
    History as History,
    StepResult as StepResult,
    Trainer as Trainer,
    callbacks as callbacks,
    load as load,
    metrics as metrics,
    parallelize as parallelize,
)

__version__ = "0.1.0"

e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
pi = 3.141592653589793
