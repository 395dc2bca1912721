"""The process of a training program: its start, its log, and the checks before and during its run."""
