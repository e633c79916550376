"""Data on the host, as NumPy arrays: what the loaders return and how it is cut into batches.

Example:
    >>> data = us.data.load("digits")  # doctest: +SKIP
    >>> trainer.train(data, epochs=10, batch_size=64)  # doctest: +SKIP
"""

from unisync.data._csv import csv as csv
from unisync.data._digits import digits as digits
from unisync.data._npz import npz as npz
from unisync.data._text import text as text
from unisync.data.batches import Batch as Batch, as_batch as as_batch
from unisync.data.dataset import Dataset as Dataset, split as split
from unisync.data.loader import Loader as Loader
from unisync.data.loading import load as load
