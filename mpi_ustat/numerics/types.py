"""The names of arrays in annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
"""Counts, sizes, row numbers and places."""
Integers = NDArray[np.signedinteger]
"""The same, as int32 where these hold them."""
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
"""What NumPy itself gives as places."""
Labels = NDArray[np.unsignedinteger]
"""Which worker each row goes to."""
Rows = NDArray[Any]
"""Rows of any kind, numbers or points."""
