"""Conformance: measurements that compare the emulator with a GPU.

For every instruction form that the registry can spell, a GPU runs the real instruction and the emulator runs its model.
The result is a line of `ledger.jsonl`. Two comparisons are made of each form:

- `harness.emulate` on the host against the instruction's results, fetched from the device. That tests the emulator as
  its users call it, parser and machine included, on a million inputs or so.
- The form's scalar definition against the instruction, both on the device. numba's LLVM code of the definition and the
  instruction as LLVM inline assembly become one kernel, which makes its own inputs and reports nothing but what
  differs. That is quick enough for all of 2^32 inputs.

| module | one idea |
|---|---|
| `forms` | from the registry to snippets of inline asm, one or more a form |
| `inputs` | which inputs: edges, strata, all of them |
| `distance` | how far apart two results are |
| `kernels` | from a snippet to PTX, and to a cubin |
| `cuda` | the few calls of the driver that are needed, without a package |
| `fetch` | what a campaign needs of a device, and the GPU that gives it |
| `measure` | one form, measured |
| `campaign` | all forms, on all cores, within a time budget |
| `products`, `otherproducts`, `groupproducts` | products of matrices on tiles: dense, sparse and scaled mma; wgmma |
| `grouprounds`, `devicemodel` | wgmma on very many tiles, compared by the GPU; the arithmetic as its kernel |
| `productcampaign` | all of these, on all cores and GPUs, within a time budget |
| `tensorforms` | the forms of tcgen05, which no device at hand has |
| `ledger` | the file, what it says of a form, and what of it is out of date |
| `bounds` | what the ISA promises of approximate instructions |
| `errors` | their largest errors over all inputs |
| `fit` | from a GPU's results to the coefficients of its special function unit |
"""
