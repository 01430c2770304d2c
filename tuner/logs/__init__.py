"""Read training logs: iterations, memory, arguments and why a job ended. Text in, values out."""

from tuner.logs.choice import asked, averaging, chosen_run, first_steady, of_job, parse_iterations, second
from tuner.logs.comparison import discrepancies, quantities, stated
from tuner.logs.failures import Sighting
from tuner.logs.frameworks import StepPattern
from tuner.logs.log import Log, read_log
from tuner.logs.records import Iteration
from tuner.logs.runs import LogRun
from tuner.logs.timing import StepSize, contradiction, derived_error, over_all, precision, timed
from tuner.logs.workload import LoggedWorkload, described, framework_of

__all__ = [
    "Iteration",
    "Log",
    "LogRun",
    "LoggedWorkload",
    "Sighting",
    "StepPattern",
    "StepSize",
    "asked",
    "averaging",
    "chosen_run",
    "contradiction",
    "derived_error",
    "described",
    "discrepancies",
    "first_steady",
    "framework_of",
    "of_job",
    "over_all",
    "parse_iterations",
    "precision",
    "quantities",
    "read_log",
    "second",
    "stated",
    "timed",
]
