"""Writes three hospitals' tables, a.csv to c.csv, as if each came from a system of its own."""

from __future__ import annotations

import csv

import numpy as np

COLUMNS = ("age", "temperature", "pressure", "creatinine")
SITES = {"a": (160, 60.0), "b": (90, 72.0), "c": (120, 45.0)}  # patients, and their mean age


def main() -> None:
    """Write the tables into this folder."""
    rng = np.random.default_rng(7)
    for site, (patients, age) in SITES.items():
        means, deviations = (age, 37.2, 130, 1.0), (12, 0.8, 18, 0.3)
        x = rng.normal(means, deviations, (patients, 4)).round(2)
        days = 4 + (x - (60, 37, 130, 1)) @ (0.05, 1.5, 0.01, 3) + rng.normal(0, 0.8, patients)
        with open(f"{site}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow((*COLUMNS, "days"))
            table.writerows([*row, f"{value:.2f}"] for row, value in zip(x, days, strict=True))


main()
