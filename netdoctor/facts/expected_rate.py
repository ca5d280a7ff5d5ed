"""What hardware should reach, and which part of it sets the limit. Data only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One thing that a transfer passes through."""

    name: str
    gbyte_s: float  # the most that it carries in one direction, 10^9 bytes per second
    # expected_share, floor_share: what healthy systems usually reach of it, and what they hardly fall below.
    expected_share: float
    floor_share: float
    physical: bool = True  # arithmetic from a link rate, which nothing exceeds; else experience with software
    source: str = ""  # where the shares come from

    @property
    def expected_gbyte_s(self) -> float:
        return self.gbyte_s * self.expected_share

    @property
    def floor_gbyte_s(self) -> float:
        return self.gbyte_s * self.floor_share


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRate:
    """The rate of a pair or an all-reduce (busbw), from the term that allows least."""

    expected_gbyte_s: float
    floor_gbyte_s: float
    bound_gbyte_s: float  # what no measurement can exceed
    limit: Term  # what sets expected_gbyte_s
    terms: tuple[Term, ...]  # all that were looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class NoExpectedRate:
    """Hardware that cannot be judged by what is known of it: a measurement, and no verdict."""

    reason: str
