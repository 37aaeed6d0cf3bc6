"""Tasks on a Ray cluster. Ray places, repeats and supervises tasks; this package states what each task needs.

The modules, in the order in which a run uses them:

- `connect`: `connected(address, shipment)` joins a cluster (`auto`, HOST:PORT) or starts one here (`local`). Only this
  module imports Ray, and only when a function of it is called.
- `shipping`: `shipment(root)` is sent to the nodes with the job: the project, the user's packages, settings.
- `nodes`: `Nodes` asks every node for its facts (what decides bits on a machine, computed by the same code as on the
  driver) and its GPUs, and refuses nodes whose facts differ.
- `tasks`: `Tasks` submits generator functions by name, and returns what they yield, each value once.
"""
