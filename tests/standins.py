"""Stand-ins for the data sets of boosters, which need not be installed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Matrix:
    """XGBoost's DMatrix, as far as metrics see it."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def get_label(self) -> Array:
        return self.get_float_info("label")

    def get_weight(self) -> Array:
        return self.get_float_info("weight")

    def get_float_info(self, field: str) -> Array:
        return np.asarray(self.fields.get(field, ()), dtype=np.float32)

    def get_uint_info(self, field: str) -> Array:
        assert field == "group_ptr"
        sizes = self.fields.get("group", ())
        return np.cumsum([0, *sizes]).astype(np.uint32) if len(sizes) else np.empty(0, np.uint32)


class Dataset:
    """LightGBM's."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def get_label(self) -> Any:
        return self.fields["label"]

    def get_weight(self) -> Any:
        return self.fields.get("weight")

    def get_group(self) -> Any:
        return self.fields.get("group")
