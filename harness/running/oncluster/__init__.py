"""A run's items on a cluster: pytest collects here, nodes run items in their own sessions of pytest.

The driver's half is `driver` (a plugin that takes the place of pytest's loop), `batches` `received` and `progress`; the
nodes' half is `nodesession`. Between them go `NodeRun` and `ItemReport` (`messages`).
"""
