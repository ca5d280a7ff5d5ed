"""Results of a report by check and target."""

from functools import cached_property

from netdoctor.report.model import Report, Result


class Index:
    """Results of a report by check and target, built once per rendering."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.family = {check.id: check.family for check in report.checks}
        self.titles = {check.id: check.title for check in report.checks}

    @cached_property
    def results(self) -> dict[tuple[str, str], Result]:
        return {(result.check, result.target): result for result in self._report.results}

    def status(self, check: str, target: str) -> str:
        result = self.results.get((check, target))
        return result.status if result else "blocked"

    def is_plain_pass(self, result: Result) -> bool:
        """Return whether a result says no more than its letter in the matrix."""
        return (
            result.status == "pass"
            and result.observed is None
            and not result.evidence
            and result.summary in ("", "pass", self.titles.get(result.check))
        )
