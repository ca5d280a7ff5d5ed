"""Facts: frozen dataclasses with units in their names, and nothing that reads or judges."""

from netdoctor.facts.base import FACT_TYPES, FactInfo, Missing, Why, fact

__all__ = ["FACT_TYPES", "FactInfo", "Missing", "Why", "fact"]
