"""A run's items on a cluster: pytest collects on the driver, and nodes run items in pytest sessions of their own.

The driver uses `driver`, a plugin that replaces pytest's loop; nodes use `node_session`. They exchange `NodeRun` and
`ItemReport` (`messages`).
"""
