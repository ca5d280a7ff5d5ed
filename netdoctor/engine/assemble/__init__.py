"""From judged results to a report: causes, commands to paste, verdict."""
