"""The data behind the reference values by R (survival, pROC), and these values."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Survival:
    """Columns of concordance.csv, and what R made of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "survival"
        self.reference: dict[str, Any] = json.loads((self.folder / "reference.json").read_text())
        with open(self.folder / "concordance.csv", newline="") as file:
            self._rows = list(csv.DictReader(file))

    def text(self, column: str) -> NDArray[Any]:
        return np.array([row[column] for row in self._rows])

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        return self.text(column).astype(np.float64)
