"""The virtual world: the same engine and services on simulated machines. Holds no scheduling logic.

slate = SqliteSlate(folder)
print(play(1234, folder, slate).findings)   # one seed, one history: what is not as it must be
"""

from orchestrator.sim.catalog import SimCatalog
from orchestrator.sim.history import History, Outcome, play
from orchestrator.sim.installation import Installation
from orchestrator.sim.mortality import EDGES, Killed, Scythe
from orchestrator.sim.sabotage import Sabotage, Saboteur
from orchestrator.sim.site import Pace, SimSite, Trained
from orchestrator.sim.slate import PostgresSlate, Slate, SqliteSlate
from orchestrator.sim.truth import findings, lost_at_most

__all__ = [
    "EDGES",
    "History",
    "Installation",
    "Killed",
    "Outcome",
    "Pace",
    "PostgresSlate",
    "Sabotage",
    "Saboteur",
    "Scythe",
    "SimCatalog",
    "SimSite",
    "Slate",
    "SqliteSlate",
    "Trained",
    "findings",
    "lost_at_most",
    "play",
]
