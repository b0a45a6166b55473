"""Writes tumours.csv: 569 breast tumours, four of their measurements, and two models' cross-validated scores.

The measurements are those of the Wisconsin diagnostic data (UCI, CC BY 4.0), as scikit-learn ships them. The scores are
of a logistic regression and of a forest on texture, smoothness and symmetry, each tumour scored by models that have
not seen it. Usage: python docs/examples/make_tumours.py
"""

import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

data = load_breast_cancer()
malignant = 1 - data.target  # scikit-learn has 1 for benign
names = [str(name) for name in data.feature_names]
columns = {name: data.data[:, names.index(f"mean {name}")] for name in ("radius", "texture", "smoothness", "symmetry")}
points = np.column_stack([columns[name] for name in ("texture", "smoothness", "symmetry")])
models = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": RandomForestClassifier(300, min_samples_leaf=5, random_state=1),
}
folds = StratifiedKFold(10, shuffle=True, random_state=1)
for name, model in models.items():
    columns[name] = cross_val_predict(model, points, malignant, cv=folds, method="predict_proba")[:, 1].round(4)

with open(Path(__file__).with_name("tumours.csv"), "w", newline="") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["malignant", *columns])
    writer.writerows(zip(malignant.tolist(), *(column.tolist() for column in columns.values()), strict=True))
