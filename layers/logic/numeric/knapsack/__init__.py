"""The 0/1 knapsack: which items of a weight and a value to take within a capacity.

The solvers know nothing of clients, rounds or uploads.
"""

from __future__ import annotations

from layers.logic.numeric.knapsack.choice import Choice
from layers.logic.numeric.knapsack.exact import solve_exact
from layers.logic.numeric.knapsack.table import Table

__all__ = ["Choice", "Table", "solve_exact"]
