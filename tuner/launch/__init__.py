"""What starts jobs and watches them: one contract, a module for each launcher."""

from tuner.launch.contract import Job, JobState, JobStatus, Launcher, Result

__all__ = ["Job", "JobState", "JobStatus", "Launcher", "Result"]
