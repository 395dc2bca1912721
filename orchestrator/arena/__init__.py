"""Arena: compares policies with each other, with the optimum and with published figures, on recorded markets.

It knows the whole record; policies only see what its tick clock shows them. It contains no scheduling logic of the
product: the product's policies come from orchestrator.policy, and the baselines are re-implementations of other
people's policies.
"""
