"""The test rig: the product's engine and services on simulated machines. It contains no scheduling logic.

database = SqliteScratchDatabase(folder)
print(play(1234, folder, database).findings)   # one seed, one history; its violations
"""

from tests.rig.crash_points import EDGES, PAUSE_EDGES, FaultInjector, Killed
from tests.rig.database import PostgresScratchDatabase, ScratchDatabase, SqliteScratchDatabase, memory_folder
from tests.rig.folder import Folder
from tests.rig.harm import HARMS
from tests.rig.history import History, play
from tests.rig.installation import SimulatedInstallation
from tests.rig.nap import Nap
from tests.rig.outcome import Outcome
from tests.rig.sabotage import Sabotage, Saboteur
from tests.rig.site import SimSite, TrainingState
from tests.rig.trainer import SAVE_EDGES, Timings
from tests.rig.truth import findings, lost_at_most
from tests.rig.wanted import train_spec

__all__ = [
    "EDGES",
    "HARMS",
    "PAUSE_EDGES",
    "SAVE_EDGES",
    "FaultInjector",
    "Folder",
    "History",
    "Killed",
    "Nap",
    "Outcome",
    "PostgresScratchDatabase",
    "Sabotage",
    "Saboteur",
    "ScratchDatabase",
    "SimSite",
    "SimulatedInstallation",
    "SqliteScratchDatabase",
    "Timings",
    "TrainingState",
    "findings",
    "lost_at_most",
    "memory_folder",
    "play",
    "train_spec",
]
