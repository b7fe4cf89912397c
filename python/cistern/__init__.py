"""Cistern lends array memory and keeps it warm for the next borrower."""
from .errors import *
from .pool import Pool, default_pool
from .serve import numpy_pool, enable_numpy, disable_numpy, pooled
