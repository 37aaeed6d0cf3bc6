"""Work on a Ray cluster: Ray places it, repeats it and watches it; this package states what a piece of work needs.

What is here, in the order in which a run uses it:

- `connect`: `connected(address, shipment)` joins a cluster (`auto`, HOST:PORT) or starts one here (`local`). Ray is
  imported there alone, and only when it is called.
- `shipping`: `shipment(root)` is what travels with the job: the project, the user's packages, settings.
- `facts`: what decides bits on a machine; the driver and every node make theirs with the same code.
- `nodes`: `Nodes` asks every node for its facts and its GPUs, and refuses one whose facts differ.
- `tasks`: `Tasks` submits generator functions by name, and gives back what they yield, each value once.
"""
