"""Training logs read as what they say: iterations, memory, arguments and why a job ended. Text in, values out."""

from tuner.logs.choice import asked, chosen_run, parse_iterations, second
from tuner.logs.failures import Sighting
from tuner.logs.log import Log, LogRun, read_log
from tuner.logs.records import Iteration
from tuner.logs.workload import LoggedWorkload, described

__all__ = [
    "Iteration",
    "Log",
    "LogRun",
    "LoggedWorkload",
    "Sighting",
    "asked",
    "chosen_run",
    "described",
    "parse_iterations",
    "read_log",
    "second",
]
