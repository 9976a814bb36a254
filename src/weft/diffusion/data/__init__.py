"""Training data of diffusion models: folders of images with captions, buckets, and a cache.

>>> import tempfile
>>> from weft.diffusion.data import BucketLoader
>>> from weft.diffusion.data.demo import shape_dataset
>>> with tempfile.TemporaryDirectory() as folder:
...     loader = BucketLoader(shape_dataset(folder, images=4), batch_size=2, seed=1)
...     sum(len(batch.paths) for batch in loader)
4
"""

from ..digests import FileDigests
from .augment import Choice, captions_of, choose
from .buckets import assign_bucket, bucket_sizes, crop_box
from .caching import CacheReport, cache
from .dataset import Batch, CachedDataset
from .encoders import Encoders, HashTextEncoder, PixelEncoder
from .loader import BucketLoader
from .plan import PlannedBatch, plan_epoch
from .report import Refusal, Sample, ScanReport
from .scan import scan
from .settings import (
    Augmentation,
    BucketSettings,
    DataSettings,
    ScanSettings,
    Source,
    TokenShuffle,
)
from .text_encoders import TransformersTextEncoder
from .vae import DiffusersVAE

__all__ = [
    "Augmentation",
    "Batch",
    "BucketLoader",
    "BucketSettings",
    "CacheReport",
    "CachedDataset",
    "Choice",
    "DataSettings",
    "DiffusersVAE",
    "Encoders",
    "FileDigests",
    "HashTextEncoder",
    "PixelEncoder",
    "PlannedBatch",
    "Refusal",
    "Sample",
    "ScanReport",
    "ScanSettings",
    "Source",
    "TokenShuffle",
    "TransformersTextEncoder",
    "assign_bucket",
    "bucket_sizes",
    "cache",
    "captions_of",
    "choose",
    "crop_box",
    "plan_epoch",
    "scan",
]


def __dir__() -> list[str]:
    return sorted(__all__)
