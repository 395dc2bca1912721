"""The arena: policies against each other, against the optimum and against published figures, on recorded markets.

It knows what happened; policies only see what its tick clock tells them. It holds no scheduling logic of the product:
our policies come from orchestrator.policy, and baselines are re-implementations of other people's.
"""
