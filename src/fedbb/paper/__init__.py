"""The paper's tables: recipes, scales and printed numbers."""
