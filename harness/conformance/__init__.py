"""Conformance: measurements that compare the emulator with a GPU.

For every instruction form in the registry, a GPU runs the real instruction and the emulator runs its model. The result
is a line of `ledger.jsonl`. Each form is compared in two ways:

- `harness.emulate` on the host is compared with the instruction's results, fetched from the device. This tests the
emulator as users call it, including parser and machine, on about a million inputs.
- The form's scalar definition is compared with the instruction, both on the device. One kernel contains numba's LLVM
code of the definition and the instruction as LLVM inline assembly; it makes its own inputs and reports only
differences. This is fast enough for all 2^32 inputs.

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
