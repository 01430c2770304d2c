"""Launchers, which start and watch jobs: one contract, and a module for each launcher."""

from tuner.launch.contract import Job, JobResult, JobState, JobStatus, Launcher

__all__ = ["Job", "JobResult", "JobState", "JobStatus", "Launcher"]
