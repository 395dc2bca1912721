"""Arena: compares policies with each other, with the optimum and with published figures, on recorded markets.

It knows what happened; policies only see what its tick clock shows them. It contains no scheduling logic of the
product: our policies come from orchestrator.policy, and the baselines are re-implementations of other people's.
"""
