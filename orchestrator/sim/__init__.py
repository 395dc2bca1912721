"""The virtual world: the same engine and services on simulated machines. Holds no scheduling logic.

slate = SqliteSlate(folder)
print(play(1234, folder, slate).findings)   # one seed, one history: what is not as it must be
"""

from orchestrator.sim.folder import Folder
from orchestrator.sim.harm import HARMS
from orchestrator.sim.history import History, play
from orchestrator.sim.installation import Installation
from orchestrator.sim.mortality import EDGES, PAUSE_EDGES, Killed, Scythe
from orchestrator.sim.nap import Nap
from orchestrator.sim.outcome import Outcome
from orchestrator.sim.sabotage import Sabotage, Saboteur
from orchestrator.sim.site import SimSite, Trained
from orchestrator.sim.slate import PostgresSlate, Slate, SqliteSlate, memory_folder
from orchestrator.sim.trainer import SAVE_EDGES, Pace
from orchestrator.sim.truth import findings, lost_at_most
from orchestrator.sim.wanted import train_spec

__all__ = [
    "EDGES",
    "HARMS",
    "PAUSE_EDGES",
    "SAVE_EDGES",
    "Folder",
    "History",
    "Installation",
    "Killed",
    "Nap",
    "Outcome",
    "Pace",
    "PostgresSlate",
    "Sabotage",
    "Saboteur",
    "Scythe",
    "SimSite",
    "Slate",
    "SqliteSlate",
    "Trained",
    "findings",
    "lost_at_most",
    "memory_folder",
    "play",
    "train_spec",
]
