"""Finished runs read, compared, reported and described: what the commands of the same names do."""

from fedbb.evaluation.cost import method_cost
from fedbb.report.audit import audit_run
from fedbb.report.compare import compare_groups
from fedbb.report.frames import read_run, read_runs
from fedbb.report.groups import gather, read_group
from fedbb.report.model_card import CardFields, model_card
from fedbb.report.page.report import write_report
from fedbb.report.verification import stored_cell, stored_run, verify
from fedbb.runs.personal import personalize

__all__ = [
    "CardFields",
    "audit_run",
    "compare_groups",
    "gather",
    "method_cost",
    "model_card",
    "personalize",
    "read_group",
    "read_run",
    "read_runs",
    "stored_cell",
    "stored_run",
    "verify",
    "write_report",
]
