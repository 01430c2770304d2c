"""What starts jobs and watches them: one contract, a module for each launcher."""

from tuner.launch.contract import Job, Launcher, Result, State, Status

__all__ = ["Job", "Launcher", "Result", "State", "Status"]
